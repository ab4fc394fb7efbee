"""The scripts of the gallery and the notebooks: what a reader of the site needs in each."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*/*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_sections_have_a_header_and_scripts():
    assert not list((ROOT / "examples").glob("*.py"))  # all are in a section
    for section in (ROOT / "examples").iterdir():
        if section.is_dir() and section.name != "__pycache__":
            title, line, *_ = (section / "README.rst").read_text().splitlines()
            assert line == "-" * len(title), section.name
            assert list(section.glob("plot_*.py")), section.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_has_a_title_an_introduction_an_alternative_text_and_links(path):
    text = path.read_text()
    _, head, rest = text.split('"""', 2)
    title, line, introduction = head.strip().split("\n", 2)
    assert line == "=" * len(title)
    assert 20 < len(introduction.split()) < 80
    last = rest.rsplit("# %%", 1)[1]  # a text block, with links to the guide
    pages = re.findall(r":doc:`/(\w+)`", last)
    assert pages
    for page in pages:
        assert (ROOT / "docs" / f"{page}.md").exists(), page
    figures = len(re.findall(r"plt\.subplots\(|Display\.from_estimator\(reg", text))
    texts = re.findall(r'set_label\(\s*"', text)
    shown = "capture_repr" in text and not figures  # a report, or a page to click
    assert texts or shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_describes_its_pictures_and_hides_its_scaffolding(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        hidden = "remove-cell" in cell.metadata.get("tags", [])
        assert hidden or "NONA_NOTEBOOK" not in cell.source
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
                assert len(alt) > 40, cell.source
            assert output.get("name") != "stderr", output.text
            assert "/tmp/" not in str(output)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_a_page(path):
    text = path.read_text()
    for target in re.findall(r"\]\((\.\./[^)#]+)", text):
        assert (path.parent / target).exists(), target
