"""Make a release: ``python .ci/release.py 0.2.0``.

Writes the version and the date where they belong, commits, builds sdist and wheel from a clean
copy, checks them, tries the wheel in empty environments, and tags. Nothing is uploaded. If it
fails, it prints the command that takes back what it wrote.
"""

import argparse
import datetime
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "nona_sklearn" / "_utils" / "docs.py"
SITE = runpy.run_path(DOCS)["SITE"]  # without importing torch
#: Where the site has what the README links to.
PAGES = {
    r"docs/images/([^)]+)": r"_images/\1",
    r"docs/_static/([^)]+)": r"_static/\1",
    r"docs/([^)#]+)\.md": r"\1.html",
    r"notebooks/([^)]+)\.ipynb": r"generated/notebooks/\1.html",
    r"examples/README\.rst": "generated/gallery/index.html",
    r"CONTRIBUTING\.md": "contributing.html",
    r"CHANGELOG\.md": "changelog.html",
}
#: The Pythons that try the wheel.
PYTHONS = ("3.11", "3.12", "3.13")
#: What a release writes: in which file, instead of which line.
LINES = [
    ("nona_sklearn/_version.py", r'^__version__ = ".*"$', '__version__ = "{version}"'),
    ("CHANGELOG.md", r"^## \S+ \(unreleased\)$", "## {version} ({date})"),
    ("CITATION.cff", r"^version: .*$", "version: {version}"),
    ("CITATION.cff", r"^date-released: .*$", 'date-released: "{date}"'),
]


def run(*command, cwd=ROOT):
    """Run a command, and end if it fails."""
    print("+", *command, flush=True)
    subprocess.run(command, check=True, cwd=cwd)


def output(*command):
    """What a command prints."""
    return subprocess.check_output(command, cwd=ROOT, text=True).strip()


def stop_if_not_ready(version):
    """End if changes are not committed, or the tag is there already."""
    if output("git", "status", "--porcelain"):
        sys.exit("commit your changes first")
    if output("git", "tag", "--list", f"v{version}"):
        sys.exit(f"the tag v{version} exists already")


def with_version(version, date):
    """Files with the version and the date in them, of which nothing is written yet."""
    contents = {path: (ROOT / path).read_text() for path, _, _ in LINES}
    for path, pattern, text in LINES:
        line = text.format(version=version, date=date)
        contents[path], n_found = re.subn(pattern, line, contents[path], flags=re.MULTILINE)
        if n_found != 1:
            sys.exit(f"{path}: {pattern!r} occurs {n_found} times, not once")
    return contents


def link_to_site(readme, version, site=SITE):
    """Let the README's links lead to the site, for a package index shows it without its files.

    Without a site, pictures are left out, and of links the text remains.
    """
    for file, page in PAGES.items():
        if site:
            readme = re.sub(rf"\]\({file}", f"]({site}/v{version}/{page}", readme)
        else:
            readme = re.sub(rf"!\[[^\]]*\]\({file}\)\n*", "", readme)
            readme = re.sub(rf"\[([^\]]*)\]\({file}[^)]*\)", r"\1", readme)
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


def find_python(version):
    """A Python of this version: on PATH, or of pyenv, whose commands run only when active."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for python in (f"python{version}", *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        try:
            subprocess.run([python, "--version"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return str(python)
    sys.exit(f"there is no Python {version}, neither on PATH nor in pyenv, to try the wheel with")


def program(page):
    """The first program of a page."""
    return re.search(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.M)[1]


def try_wheel(folder, pythons):
    """Install the wheel where nothing else is: run a program without extras, then with pandas.

    With each Python and the pinned versions; with the first also with the lowest versions.
    """
    wheel = next((ROOT / "dist").glob("*.whl"))
    lowest = folder / "lowest.txt"
    lowest.write_bytes(subprocess.check_output([sys.executable, ROOT / ".ci/lower_bounds.py"]))
    tries = [(python, ROOT / "constraints.txt") for python in pythons] + [(pythons[0], lowest)]
    for i, (python, constraints) in enumerate(tries):
        place = folder / f"try_{i}"
        run(python, "-m", "venv", str(place))
        python = str(place / "bin" / "python")
        for extra, page in (("", "docs/install.md"), ("[demo]", "README.md")):
            run(python, "-m", "pip", "install", "-q", "-c", str(constraints), f"{wheel}{extra}")
            run(python, "-I", "-c", program(page), cwd=place)  # of nowhere but the wheel
        run(python, "-I", "-m", "nona_sklearn", cwd=place)


def release(version, contents, pythons):
    """Write, commit, build, try and tag."""
    for path, content in contents.items():
        (ROOT / path).write_text(content)
    run("git", "commit", "-qam", f"Release {version}")
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), version)
        try_wheel(Path(folder), pythons)
    run("git", "tag", f"v{version}")


def main():
    """Make the release of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 0.2.0")
    version = parser.parse_args().version
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        parser.error(f"version must be three numbers, got {version!r}")
    stop_if_not_ready(version)
    contents = with_version(version, datetime.date.today().isoformat())
    pythons = [find_python(each) for each in PYTHONS]
    start = output("git", "rev-parse", "HEAD")
    try:
        release(version, contents, pythons)
    except BaseException:
        print(f"{version} is not released. To take it back: git reset --hard {start}", flush=True)
        raise
    print(
        f"dist/ holds {version}; the tag is v{version}. Push both, upload dist/ by twine, and "
        "publish the site of the tag, whose address is SITE in nona_sklearn/_utils/docs.py. Then "
        "write the next version into nona_sklearn/_version.py, with .dev0 at its end, and into "
        "CHANGELOG.md."
    )


if __name__ == "__main__":
    main()
