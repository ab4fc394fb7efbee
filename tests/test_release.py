"""A release, in a repository of its own: what it writes, and that nothing is lost if it fails."""

import datetime
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from inner.utils import SITE, page_template

import nona_sklearn

ROOT = Path(__file__).parents[1]
FILES = [
    ".ci/release.py",
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "nona_sklearn/_version.py",
    "nona_sklearn/_utils/docs.py",
]
NEWS = "# Changelog\n\n## 1.2.0 (unreleased)\n\n- news\n\n## 1.1.0 (2020-01-01)\n"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """What a release reads and writes, committed twice."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a git that runs the tests must not lend us its repository
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "nobody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "nobody@example.org")
    for file in FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    git(tmp_path, "init", "-q")
    commit(tmp_path, "Start")
    (tmp_path / "CHANGELOG.md").write_text(NEWS)
    commit(tmp_path, "News")
    return tmp_path


def git(folder, *arguments):
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


def commit(folder, message):
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


def state(folder):
    """The commit, the tags, and which files differ from it."""
    return [git(folder, *what.split()) for what in ("rev-parse HEAD", "tag", "status -s", "diff")]


def load(repository):
    """The script as a module."""
    path = repository / ".ci" / "release.py"
    specification = importlib.util.spec_from_file_location("release", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def script(repository, monkeypatch):
    """The script, which would release 1.2.0, but builds and tries nothing."""
    with monkeypatch.context() as patch:
        # The script works where torch is not.
        for name in ("nona_sklearn", "nona_sklearn._utils.docs"):
            patch.setitem(sys.modules, name, None)
        module = load(repository)
    monkeypatch.setattr(sys, "argv", ["release.py", "1.2.0"])
    monkeypatch.setattr(module, "build", lambda folder, version: None)
    monkeypatch.setattr(module, "try_wheel", lambda folder, pythons: None)
    monkeypatch.setattr(module, "find_python", lambda version: sys.executable)
    return module


def test_it_has_the_site_without_importing_the_package(script):
    assert script.SITE == SITE


README = """![a map](docs/images/map.png)

*A map.* [Tables](docs/tables.md#texts), [news](CHANGELOG.md), [arXiv](https://arxiv.org/abs/1).
"""


def test_links_of_the_readme_lead_to_the_site_if_there_is_one(script):
    start = "https://example.org/en"
    assert script.link_to_site(README, "1.2.0", site=start) == (
        f"![a map]({start}/v1.2.0/_images/map.png)\n\n"
        f"*A map.* [Tables]({start}/v1.2.0/tables.html#texts), "
        f"[news]({start}/v1.2.0/changelog.html), "
        "[arXiv](https://arxiv.org/abs/1).\n"
    )
    plain = "*A map.* Tables, news, [arXiv](https://arxiv.org/abs/1).\n"
    assert script.link_to_site(README, "1.2.0", site="") == plain


def test_estimators_link_to_the_site_if_there_is_one():
    assert page_template("") == ""
    start = "https://example.org/en"
    address = page_template(start).format(version="v1.2.0", name="NONARegressor")
    assert address == f"{start}/v1.2.0/generated/api/nona_sklearn.NONARegressor.html"


def test_a_release_needs_every_python_that_tries_the_wheel(repository, monkeypatch):
    script = load(repository)
    monkeypatch.setattr(script, "PYTHONS", ("3.99",))
    monkeypatch.setattr(sys, "argv", ["release.py", "1.2.0"])
    monkeypatch.setenv("PYENV_ROOT", str(repository))
    before = state(repository)
    with pytest.raises(SystemExit, match=r"there is no Python 3\.99"):
        script.main()
    assert state(repository) == before


def test_version_and_date_are_written_committed_and_tagged(script, repository):
    script.main()
    today = datetime.date.today().isoformat()
    assert '\n__version__ = "1.2.0"\n' in (repository / "nona_sklearn/_version.py").read_text()
    assert (repository / "CHANGELOG.md").read_text() == NEWS.replace("unreleased", today)
    citation = (repository / "CITATION.cff").read_text()
    assert f'\nversion: 1.2.0\ndate-released: "{today}"\n' in citation
    assert git(repository, "log", "--format=%s") == "Release 1.2.0\nNews\nStart"
    assert git(repository, "rev-parse", "v1.2.0") == git(repository, "rev-parse", "HEAD")
    assert not git(repository, "status", "--porcelain")


def leave_no_news(folder):
    (folder / "CHANGELOG.md").write_text(NEWS.replace("unreleased", "2020-02-02"))
    commit(folder, "No news")


def tag(folder):
    git(folder, "tag", "v1.2.0")


def leave_changes(folder):
    (folder / "CITATION.cff").write_text("version: 1.1.0\n")


@pytest.mark.parametrize(
    ("obstacle", "complaint"),
    [
        (leave_no_news, "CHANGELOG.md: .* occurs 0 times"),
        (tag, "the tag v1.2.0 exists already"),
        (leave_changes, "commit your changes first"),
    ],
)
def test_it_ends_before_it_writes(script, repository, obstacle, complaint):
    obstacle(repository)
    before = state(repository)
    with pytest.raises(SystemExit, match=complaint):
        script.main()
    assert state(repository) == before


def refuse_commits(script, repository, monkeypatch):
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)


def interrupt_the_build(script, repository, monkeypatch):
    def build(folder, version):
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "build", build)


def break_the_wheel(script, repository, monkeypatch):
    monkeypatch.setattr(script, "try_wheel", lambda folder, pythons: script.run("false"))


@pytest.mark.parametrize("fault", [refuse_commits, interrupt_the_build, break_the_wheel])
def test_what_a_failed_release_wrote_is_taken_back(script, repository, monkeypatch, capfd, fault):
    before = state(repository)
    fault(script, repository, monkeypatch)
    with pytest.raises((subprocess.CalledProcessError, KeyboardInterrupt)):
        script.main()
    assert state(repository) != before
    advice = re.search(r"git (reset --hard \w+)$", capfd.readouterr().out, re.MULTILINE)
    git(repository, *shlex.split(advice[1]))
    assert state(repository) == before


def test_the_citation_is_of_the_last_version_and_its_date():
    citation = (ROOT / "CITATION.cff").read_text()
    version = re.search(r"^version: (.*)$", citation, re.MULTILINE)[1]
    date = re.search(r'^date-released: "(.*)"$', citation, re.MULTILINE)[1]
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if nona_sklearn.__version__ == version:
        assert headings[0] == f"{version} ({date})"
    else:  # of the next version
        assert nona_sklearn.__version__ == f"{headings[0].removesuffix(' (unreleased)')}.dev0"
        assert headings[1] == f"{version} ({date})"


def test_it_finds_the_python_that_runs(repository, monkeypatch):
    script = load(repository)
    monkeypatch.setenv("PYENV_ROOT", str(repository))
    for name, status in [("3.99.1", 1), ("3.99.2", 0), ("3.990.1", 0)]:
        python = repository / "versions" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\nexit {status}\n")
        python.chmod(0o755)
    assert script.find_python("3.99") == str(repository / "versions/3.99.2/bin/python")


@pytest.mark.parametrize(
    ("file", "page"),
    [
        ("docs/_static/x.png", "_static/x.png"),
        ("notebooks/x.ipynb", "generated/notebooks/x.html"),
        ("examples/README.rst", "generated/gallery/index.html"),
        ("CONTRIBUTING.md", "contributing.html"),
    ],
)
def test_where_the_site_has_what_the_readme_links_to(script, file, page):
    assert script.link_to_site(f"[a]({file})", "1.2.0", site="s") == f"[a](s/v1.2.0/{page})"
