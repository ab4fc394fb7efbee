"""The site: ``python -m sphinx -W docs docs/_build/html``."""

import json
import os
import re
import sys
import zlib
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import nona_sklearn

project = "nona_sklearn"
copyright = "nona_sklearn developers"
version = release = nona_sklearn.__version__

templates_path = ["_templates"]
HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_ext"))
#: Where this version of the site is published, such as https://example.org/en/v0.4.0/, if it is.
ADDRESS = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
ALL_VERSIONS = ADDRESS.rstrip("/").rpartition("/")[0]
#: Pages for those who develop the package. They are neither on the site nor in its search.
INTERNAL = ("ablations", "decisions", "developing", "internals", "measurements")
INVENTORIES = HERE / "generated" / "inventories"

extensions = [
    "myst_nb",  # Markdown pages, and notebooks as they were run
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinxext.opengraph",
    *("front", "keywords", "mathml", "reference"),  # of docs/_ext
]
exclude_patterns = [
    *("_build", "_templates", *(f"{page}.md" for page in INTERNAL)),
    *(f"generated/gallery/**{kind}" for kind in (".py", ".ipynb", ".json", ".md5", ".zip")),
]

# -- pages ------------------------------------------------------------------------------------
nb_execution_mode = "off"  # notebooks ship with their output, and run as tests
# A page that states `execution_mode: inline` runs: its pictures and numbers are the build's.
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_output_stderr = "error"
nb_merge_streams = True
nb_eval_name_regex = ".+"
os.environ["MATPLOTLIBRC"] = str(HERE / "_ext" / "matplotlibrc")  # of their processes
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# -- reference --------------------------------------------------------------------------------
autosummary_generate = True
numpydoc_show_class_members = False  # the templates list them
numpydoc_xref_param_type = False
autodoc_typehints = "none"  # docstrings have more
toc_object_entries_show_parents = "hide"  # "On this page" has room for short names
# What we refer to, by name: a build has no network, so it cannot read the others' sites.
intersphinx_mapping = {
    path.stem: (path.read_text().splitlines()[0], str(INVENTORIES / f"{path.stem}.inv"))
    for path in sorted(HERE.glob("inventories/*.txt"))
}

# -- gallery ----------------------------------------------------------------------------------
SECTIONS = ("tables", "explain", "data", "intervals", "texts_images", "large", "method")
FIRST = ("table", "house_price", "report", "label_errors", "texts", "spiral")  # of their sections
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "generated/gallery",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("nona_sklearn",),
    "filename_pattern": "/plot_",
    "subsection_order": ExplicitOrder([f"../examples/{name}" for name in SECTIONS]),
    "within_subsection_order": ExplicitOrder([*(f"plot_{name}.py" for name in FIRST), "*"]),
    "download_all_examples": False,
    "show_memory": False,
    "image_scrapers": ("gallery",),  # of docs/_ext
    "capture_repr": (),  # pictures and what is printed
    "min_reported_time": 1000,
    "remove_config_comments": True,
    "write_computation_times": False,
    "abort_on_example_error": True,
}

# -- looks ------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_title = f"nona_sklearn {release}"
html_baseurl = ADDRESS
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"benchmarks": []}  # a section of one page
html_favicon = "_static/favicon.svg"
html_search_scorer = str(HERE / "_ext" / "scorer.js")
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo.svg", "text": project},
    "navbar_align": "left",
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
if ADDRESS:  # a menu of all versions, of which the newest site has the list
    html_theme_options["switcher"] = {
        "json_url": f"{ALL_VERSIONS}/latest/_static/switcher.json",
        "version_match": release,
    }
    html_theme_options["navbar_end"] = ["version-switcher", "theme-switcher"]
    html_theme_options["check_switcher"] = False  # a build has no network

# -- what other sites show of a link to this one ----------------------------------------------
ogp_site_url = ADDRESS
ogp_image = "_static/social.png"
ogp_image_alt = "nona_sklearn: deep nearest neighbours for scikit-learn"
ogp_social_cards = {"enable": False}

# -- pages that lie elsewhere -----------------------------------------------------------------
OUTSIDE = {"README": "index", "CHANGELOG": "changelog", "CONTRIBUTING": "contributing"}
# A public name in a line of text, but not in a heading or in the text of a link.
NAMES = "|".join(name for name in nona_sklearn.__all__ if not name.startswith("_"))
NAMED = re.compile(rf"(?<![\[`])`({NAMES})`(?![\]`])")
#: A link to a page that the site does not have, of which the text remains.
TO_INTERNAL = re.compile(rf"\[([^\]]+)\]\((?:{'|'.join(INTERNAL)})\.md[^)]*\)")


def _link_names(text):
    """Let public names in the text of a page lead to their reference."""
    lines, code = text.split("\n"), False
    for i, line in enumerate(lines):
        code ^= line.startswith("```")
        if not code and not line.startswith(("#", "```")):
            lines[i] = NAMED.sub(r"{py:obj}`\1 <nona_sklearn.\1>`", line)
    return "\n".join(lines)


def _lead_inside(app, page, source):
    """Let links that lead out of this folder on disk lead to the site's own pages."""
    text = source[0]
    for file, own in OUTSIDE.items():
        if page == own and page != "index":
            text = (ROOT / f"{file}.md").read_text().replace("](docs/", "](")
    if Path(app.env.doc2path(page)).suffix == ".md":
        text = _link_names(text.replace("\n\n```\n", "\n```\n"))  # doctest needs an empty line
    for file, own in OUTSIDE.items():
        text = text.replace(f"](../{file}.md", f"]({own}.md")
    text = TO_INTERNAL.sub(r"\1", text)
    text = text.replace("](../examples/README.rst", "](generated/gallery/index.rst")
    source[0] = text.replace("](../notebooks/", "](generated/notebooks/")


def _copy_notebooks(app):
    """Copy the notebooks: Sphinx reads only what lies in its folder."""
    folder = HERE / "generated" / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = notebook.read_text().replace("](../docs/", "](../../")
        (folder / notebook.name).write_text(text.replace("](../README.md", "](../../index.md"))


def _write_inventories():
    """Make of each list of names the file that Sphinx reads."""
    INVENTORIES.mkdir(parents=True, exist_ok=True)
    for path in HERE.glob("inventories/*.txt"):
        header = f"# Sphinx inventory version 2\n# Project: {path.stem}\n# Version: \n"
        header += "# The remainder of this file is compressed using zlib.\n"
        names = "".join(f"{line}\n" for line in path.read_text().splitlines()[1:])
        content = header.encode() + zlib.compress(names.encode())
        (INVENTORIES / f"{path.stem}.inv").write_bytes(content)


def _write_switcher(app, error):
    """Write the list of versions that the menu shows, from the changelog's headings."""
    if not ADDRESS or error:
        return
    released = re.findall(r"^## (\S+) \(\d", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [{"name": v, "version": v, "url": f"{ALL_VERSIONS}/v{v}/"} for v in released]
    (Path(app.outdir) / "_static" / "switcher.json").write_text(json.dumps(versions, indent=1))


_write_inventories()


def setup(app):
    """Register what is done to pages before they are read."""
    app.connect("builder-inited", _copy_notebooks)
    app.connect("source-read", _lead_inside)
    app.connect("build-finished", _write_switcher)
