"""The site, as it is built: no warning, no name left out, ten topics within two clicks."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

import nona_sklearn
from nona_sklearn._utils.docs import SITE

ROOT = Path(__file__).parents[1]
#: Topics of newcomers, a word that they search for, and the page and heading of each.
TOPICS = [
    ("use a GPU", "gpu", "install.html", "Use a GPU"),
    ("n_jobs", "n_job", "faster.html", "Threads and processes"),
    ("what to search for", "grid", "user_guide.html", "Tune"),
    ("categories", "categori", "tables.html", "Raw tables"),
    ("names of rows", "name", "neighbors.html", "Which rows"),
    ("save", "save", "saving.html", "Save and load"),
    ("make it faster", "faster", "faster.html", "Make it faster"),
    ("weights of rows", "sample_weight", "user_guide.html", "Sample weights"),
    ("forget a row", "forget", "editing.html", "bank"),
    ("classify", "class", "classes.html", "Classes"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, with the pictures of the gallery."""
    pytest.importorskip("sphinx")
    copy = tmp_path_factory.mktemp("site")  # a build writes beside the pages
    for part in ("docs", "examples", "notebooks"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("generated"))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, copy)
    built = copy / "built"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going"]
    command += ["docs", str(built)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=copy, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return built


def links(site, page):
    """Pages of the site that a page links to."""
    hrefs = re.findall(r'href="([^"#:]+\.html)', (site / page).read_text())
    return {urljoin(page, unescape(href)) for href in hrefs}


@pytest.mark.slow
def test_ten_topics_are_within_two_clicks_of_the_start(site):
    one = links(site, "index.html")
    two = one.union(*(links(site, page) for page in one if (site / page).exists()))
    for topic, _, page, heading in TOPICS:
        assert page in two, topic
        headings = re.findall(r"<h[123]>(.*?)<", (site / page).read_text())
        assert any(heading in unescape(each) for each in headings), (topic, headings)


@pytest.mark.slow
def test_ten_topics_are_found_by_the_search(site):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    for topic, word, page, _ in TOPICS:
        document = index["docnames"].index(page.removesuffix(".html"))
        found = [
            where
            for part in ("terms", "titleterms")
            for term, where in index[part].items()
            if term.startswith(word)
        ]
        assert any(document in ([w] if isinstance(w, int) else w) for w in found), topic


@pytest.mark.slow
@pytest.mark.parametrize("name", nona_sklearn.__all__)
def test_every_public_name_has_a_page_with_its_parameters(site, name):
    if name.startswith("__"):
        return
    path = f"generated/api/nona_sklearn.{name}.html"
    page, thing = (site / path).read_text(), getattr(nona_sklearn, name)
    if hasattr(thing, "_doc_link_template"):  # where notebooks lead
        version = f"v{nona_sklearn.__version__}"
        assert thing._doc_link_template.format(name=name, version=version).endswith(path)
    assert f'id="nona_sklearn.{name}"' in page
    assert "Examples" in page
    if "Parameters" in (thing.__doc__ or ""):
        assert "Parameters" in page


@pytest.mark.slow
def test_links_of_the_site_lead_to_its_pages(site):
    for path in site.rglob("*.html"):
        page = path.relative_to(site).as_posix()
        for link in links(site, page):
            assert (site / link).exists(), f"{page} links to {link}"


@pytest.mark.slow
def test_links_of_the_released_readme_lead_to_the_site(site):
    release = runpy.run_path(str(ROOT / ".ci" / "release.py"))
    readme = release["link_to_site"]((ROOT / "README.md").read_text(), "1.2.3")
    start = f"{SITE}/v1.2.3/"
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    ours = [t.removeprefix(start) for t in targets if t.startswith(start)]
    assert len(ours) > 20
    assert all(t.startswith("https://") for t in targets)
    for target in ours:
        page, _, anchor = target.partition("#")
        assert (site / page).exists(), target
        assert not anchor or f'id="{anchor}"' in (site / page).read_text(), target
