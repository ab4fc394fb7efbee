"""Make a release: ``python .ci/release.py 0.2.0``.

Writes the version and the date where they belong, commits, builds sdist and wheel from a clean
copy, checks them, tries the wheel in empty environments, and tags. Nothing is uploaded. If it
fails, ``git reset --hard HEAD~`` takes the commit back.
"""

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from nona_sklearn._docs import SITE

ROOT = Path(__file__).resolve().parents[1]
#: Where the site has what the README links to.
PAGES = {
    r"docs/images/([^)]+)": r"_images/\1",
    r"docs/([^)#]+)\.md": r"\1.html",
    r"notebooks/([^)]+)\.ipynb": r"generated/notebooks/\1.html",
    r"examples/README\.rst": "generated/gallery/index.html",
}


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


def link_to_site(readme, version):
    """Let the README's links lead to the site, for a package index shows it without its files."""
    for file, page in PAGES.items():
        readme = re.sub(rf"\]\({file}", f"]({SITE}/v{version}/{page}", readme)
    return readme


def build(folder, version):
    """Build from what is committed, and check the metadata."""
    copy = folder / "copy"
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run("git", "worktree", "add", "--detach", str(copy), "HEAD")
    try:
        readme = copy / "README.md"
        readme.write_text(link_to_site(readme.read_text(), version))
        run(sys.executable, "-m", "build", "--outdir", str(ROOT / "dist"), str(copy))
    finally:
        run("git", "worktree", "remove", "--force", str(copy))
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, (ROOT / "dist").iterdir()))


def try_wheel(folder):
    """Install the wheel where nothing else is, and let the demo run: newest, lowest versions."""
    wheel = next((ROOT / "dist").glob("*.whl"))
    lowest = folder / "lowest.txt"
    lowest.write_bytes(subprocess.check_output([sys.executable, ROOT / ".ci/lower_bounds.py"]))
    for constraints in (ROOT / "constraints.txt", lowest):
        place = folder / constraints.stem
        venv.create(place, with_pip=True)
        python = str(place / "bin" / "python")
        run(python, "-m", "pip", "install", "-q", "-c", str(constraints), f"{wheel}[demo]")
        run(python, "-I", "-m", "nona_sklearn", cwd=folder)  # of nowhere but the wheel


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
        build(Path(folder), version)
        try_wheel(Path(folder))
    run("git", "tag", f"v{version}")
    print(
        f"dist/ holds {version}; the tag is v{version}. Push both, upload dist/ by twine, and see "
        "that nona-sklearn.readthedocs.io builds the tag: notebooks link to it."
    )


if __name__ == "__main__":
    main()
