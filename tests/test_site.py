"""The site, as it is built: no warning, no name left out, topics within clicks and searches."""

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
from inner.estimators import PARAMETER_GROUPS
from inner.utils import page_template

import nona_sklearn

ROOT = Path(__file__).parents[1]
#: Topics of newcomers, and the page and heading of each.
TOPICS = [
    ("use a GPU", "install.html", "Use a GPU"),
    ("n_jobs", "faster.html", "Threads and processes"),
    ("what to search for", "tune.html", "Hyperparameter search"),
    ("categories", "tables.html", "Tables"),
    ("names of rows", "similar.html", "Names of rows"),
    ("save", "saving.html", "Save and load"),
    ("make it faster", "faster.html", "Speed"),
    ("weights of rows", "targets.html", "Sample weights"),
    ("forget a row", "editing.html", "Forget rows"),
    ("classify", "classes.html", "Classification"),
]
#: What a newcomer types into the search, and the page that comes first.
QUERIES = {
    "missing values": "tables",
    "categorical features": "tables",
    "hyperparameters": "tune",
    "grid search": "tune",
    "sample_weight": "targets",
    "prediction intervals": "intervals",
    "quantiles": "intervals",
    "feature importance": "effects",
    "counterfactuals": "decision",
    "explain prediction": "neighbors",
    "time series": "time",
    "forecast": "time",
    "gpu": "install",
    "n_jobs": "faster",
    "slow fit": "faster",
    "save model": "saving",
    "onnx": "saving",
    "deployment": "serving",
    "forget a row": "editing",
    "classification": "classes",
    "label errors": "check_data",
    "text embeddings": "texts_images",
    "large data": "scaling",
    "custom similarity": "extending",
    "how it works": "method",
    "catboost": "coming",
    "troubleshooting": "faq",
    "cite": "references",
    "benchmark": "benchmarks",
    "partial dependence": "effects",
    "shap": "effects",
    "fairness": "fairness",
    "similar items": "similar",
    "error message": "errors",
    "convergencewarning": "errors",
    "formula": "formulas",
    "survival curve": "survival",
    "comparables": "eligibility",
    "sample weights": "targets",
    "quantile forest": "coming",
    "prediction sets": "intervals",
    "novelty": "neighbors",
    "coordinates": "places",
    "conda": "install",
    "neighbours": "method",  # as many times in lists of pages and in scripts
}


@pytest.fixture(scope="session")
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
    for topic, page, heading in TOPICS:
        assert page in two, topic
        headings = re.findall(r"<h[123]>(.*?)<", (site / page).read_text())
        assert any(heading in unescape(each) for each in headings), (topic, headings)


@pytest.mark.slow
def test_the_search_has_the_right_page_first(site):
    """The site's own scripts rank the pages; node runs them in place of a browser."""
    if not shutil.which("node"):
        pytest.skip("needs node")
    command = ["node", str(ROOT / "tests" / "search.mjs"), str(site), *QUERIES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = dict(zip(QUERIES, json.loads(done.stdout), strict=True))
    assert {query: pages[:1] for query, pages in found.items()} == {
        query: [page] for query, page in QUERIES.items()
    }


@pytest.mark.slow
def test_pages_for_developers_are_neither_on_the_site_nor_in_its_search(site):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    internal = runpy.run_path(str(ROOT / "docs" / "conf.py"))["INTERNAL"]
    assert len(internal) >= 4
    for page in internal:
        assert (ROOT / "docs" / f"{page}.md").exists()
        assert page not in index["docnames"]
    appendix = index["docnames"].index("appendix")
    found = [where for where in index["terms"].values() if where == appendix]
    assert not found  # words that only the appendix has are not in the index


@pytest.mark.slow
def test_every_page_has_a_description_an_icon_and_contents(site):
    for name in ("index", "tables", "benchmarks", "method", "faq"):
        page = (site / f"{name}.html").read_text()
        assert re.search(r'<meta name="description" content="[^"]{40,}"', page), name
        assert 'property="og:image" content="' in page, name
        assert 'rel="icon"' in page, name
        assert "site.css" in page, name
        assert "pst-page-toc" in page or "page-toc" in page, name


@pytest.mark.slow
def test_the_front_page_shows_what_its_code_writes(site):
    page = (site / "index.html").read_text()
    (report,) = re.findall(r'<article class="nona-report">(.*?)</article>', page, re.DOTALL)
    assert "<h1>Prediction of <bdi>price</bdi> for <bdi>house 1340</bdi></h1>" in report
    for house in ("house 1237", "house 1764", "house 1695"):  # as in the README's picture
        assert house in report


@pytest.mark.slow
def test_links_lead_to_pages_and_headings(site):
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    names = {name: {*re.findall(r'\b(?:id|name)="([^"]+)"', pages[name])} for name in pages}
    for name, page in pages.items():
        for href in re.findall(r'<a [^>]*href="([^":]+)"', page):
            path, _, heading = urljoin(name, unescape(href)).partition("#")
            assert (site / path).is_file(), (name, href)
            assert not heading or path not in pages or heading in names[path], (name, href)


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site):
    """Formulas, scripts and fonts come with the site. Links may lead away."""
    for path in site.rglob("*.html"):
        page = re.sub(r"<a [^>]*>", "", path.read_text())
        loaded = re.findall(r"""(?:src|srcset|data)=["'](https?:[^"']*)""", page)
        loaded += re.findall(r"""<link [^>]*rel="stylesheet"[^>]*href="(http[^"]*)""", page)
        assert not loaded, (path.name, loaded)
    assert "<math " in (site / "formulas.html").read_text()


@pytest.mark.slow
def test_parameters_of_an_estimator_are_grouped(site):
    page = (site / "generated/api/nona_sklearn.NONARegressor.html").read_text()
    for group in PARAMETER_GROUPS:
        assert f'<p class="rubric">{group}</p>' in page, group


@pytest.mark.slow
def test_pictures_of_the_gallery_have_the_texts_of_their_figures(site):
    for path in (ROOT / "examples").glob("*/plot_*.py"):
        page = site / "generated" / "gallery" / path.parent.name / f"{path.stem}.html"
        html = unescape(page.read_text())
        for text in re.findall(r'set_label\(\s*"([^"]+)"', path.read_text()):
            assert f'alt="{text}' in html, (path.stem, text)


@pytest.mark.slow
def test_pictures_of_the_site_have_a_text(site):
    for path in site.rglob("*.html"):
        for image in re.findall(r"<img [^>]*>", path.read_text()):
            if "logo__image" in image or "_thumb." in image:
                continue  # the name stands beside it
            alt = re.search(r'alt="([^"]*)"', image)
            assert alt, (path.name, image)
            assert alt[1].strip(), (path.name, image)
            assert not alt[1].endswith((".png", ".svg")), (path.name, image)


@pytest.mark.slow
@pytest.mark.parametrize("name", nona_sklearn.__all__)
def test_every_public_name_has_a_page_with_its_parameters(site, name):
    if name.startswith("__"):
        return
    path = f"generated/api/nona_sklearn.{name}.html"
    page, thing = (site / path).read_text(), getattr(nona_sklearn, name)
    if hasattr(thing, "_doc_link_template"):  # where notebooks lead
        template = page_template("https://example.org/en")
        address = template.format(name=name, version=f"v{nona_sklearn.__version__}")
        assert address.endswith(path)
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
    address = "https://example.org/en"
    readme = release["link_to_site"]((ROOT / "README.md").read_text(), "1.2.3", site=address)
    start = f"{address}/v1.2.3/"
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    ours = [t.removeprefix(start) for t in targets if t.startswith(start)]
    assert len(ours) > 20
    assert all(t.startswith("https://") for t in targets)
    for target in ours:
        page, _, anchor = target.partition("#")
        assert (site / page).exists(), target
        assert not anchor or f'id="{anchor}"' in (site / page).read_text(), target
