"""Print constraints for pip: of every requirement the lowest version that setup.cfg allows.

What setup.cfg leaves open keeps its pin in constraints.txt. So does torch, of which PyPI
has older versions for Linux only as builds for GPUs, of several gigabytes.
"""

import re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = {"torch"}


def requirements():
    """All lines of install_requires and of every extra; an extra within an extra is unfolded."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lists = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    return {line for text in lists for line in text.splitlines() if line}


def pins():
    """Name and version of every line of constraints.txt."""
    return dict(re.findall(r"^(\S+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def lower_bounds():
    """Pairs of name and version, one for every requirement that has any."""
    tested = pins()
    for line in sorted(requirements()):
        name, _, bound = (part.strip() for part in line.partition(">="))
        name = name.partition("[")[0]  # constraints have no extras
        version = tested.get(name) if name in PINNED or not bound else bound
        if version:
            yield name, version


if __name__ == "__main__":
    for name, version in lower_bounds():
        print(f"{name}=={version}")
