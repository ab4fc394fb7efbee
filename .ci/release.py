"""Make a release: ``python .ci/release.py 0.2.0``.

Writes the version and the date where they belong, builds sdist and wheel from a clean copy,
checks them, tries the wheel in an empty environment, commits and tags. Nothing is uploaded.
"""

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*command, cwd=ROOT):
    """Run a command, and end if it fails."""
    print("+", *command, flush=True)
    subprocess.run(command, check=True, cwd=cwd)


def replace(path, pattern, text):
    """Replace what occurs exactly once in a file."""
    content = (ROOT / path).read_text()
    content, n_found = re.subn(pattern, text, content, flags=re.MULTILINE)
    if n_found != 1:
        sys.exit(f"{path}: {pattern!r} occurs {n_found} times, not once")
    (ROOT / path).write_text(content)


def set_version(version, date):
    """Write the version and the date into code, changelog and citation."""
    replace("nona_sklearn/__init__.py", r'^__version__ = ".*"$', f'__version__ = "{version}"')
    replace("CHANGELOG.md", r"^## \S+ \(unreleased\)$", f"## {version} ({date})")
    replace("CITATION.cff", r"^version: .*$", f"version: {version}")


def build(folder):
    """Build from what is committed, and check the metadata."""
    copy = folder / "copy"
    run("git", "worktree", "add", "--detach", str(copy), "HEAD")
    try:
        run(sys.executable, "-m", "build", "--outdir", str(ROOT / "dist"), str(copy))
    finally:
        run("git", "worktree", "remove", "--force", str(copy))
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, (ROOT / "dist").iterdir()))


def try_wheel(folder, version):
    """Install the wheel where nothing else is, and let the demo run: newest, lowest versions."""
    wheel = next((ROOT / "dist").glob(f"*{version}*.whl"))
    lowest = folder / "lowest.txt"
    lowest.write_bytes(subprocess.check_output([sys.executable, ROOT / ".ci/lower_bounds.py"]))
    for constraints in (ROOT / "constraints.txt", lowest):
        place = folder / constraints.stem
        venv.create(place, with_pip=True)
        python = str(place / "bin" / "python")
        run(python, "-m", "pip", "install", "-q", "-c", str(constraints), f"{wheel}[demo]")
        run(python, "-m", "nona_sklearn", cwd=folder)


def main():
    """Make the release that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 0.2.0")
    version = parser.parse_args().version
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        parser.error(f"version must be three numbers, got {version!r}")
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        sys.exit("commit your changes first")
    set_version(version, datetime.date.today().isoformat())
    run("git", "commit", "-qam", f"Release {version}")
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        try_wheel(Path(folder), version)
    run("git", "tag", f"v{version}")
    print(
        f"dist/ holds {version}; the tag is v{version}. Push both, upload dist/ by twine, and see "
        "that nona-sklearn.readthedocs.io builds the tag: notebooks link to it."
    )


if __name__ == "__main__":
    main()
