"""Draw the pictures of README and docs/pictures.md, by running the code above each."""

import doctest
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "README.md", ROOT / "docs" / "pictures.md"
STYLE = {"figure.figsize": (6, 3.6)}
#: In a browser, of pages that examples/plot_report.py and plot_explorer.py make.
SCREENSHOTS = r"(?:report|explorer)\.png"


def shorten(source):
    """Cut the training of the page's code."""
    return re.sub(r"(NONA\w+)\(", r"\1(max_iter=2, ", source)


def draw(text, names):
    """Run the examples in a part of the page; returns the figure that they drew last."""
    for example in doctest.DocTestParser().get_examples(text):
        exec(example.source, names)
    return names["display"].figure_


def run(args):
    """Run each page from picture to picture, save what was drawn last, print the sizes."""
    matplotlib.use("agg")
    for page in PAGES:
        draw_page(page.read_text(), args)


def draw_page(page, args):
    """Draw the pictures of one page."""
    drawn = rf"!\[.*\]\((?!.*{SCREENSHOTS})(.*)\)"
    *parts, _ = re.split(drawn, shorten(page) if args.quick else page)
    names = {}
    for text, picture in zip(parts[::2], parts[1::2], strict=True):
        path = args.images / Path(picture).name
        with plt.rc_context(STYLE):
            draw(text, names).savefig(path, dpi=90)
        plt.close("all")
        size = path.stat().st_size / 1024
        print(f"{picture:30s}{size:6.0f} kB")
        assert size > 1, f"{picture} is empty"
