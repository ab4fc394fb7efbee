"""Draw the pictures of docs/pictures.md, by running the code that stands above each.

python benchmarks/pictures.py
"""

import doctest
import re
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt

PAGE = Path(__file__).parents[1] / "docs" / "pictures.md"


def main():
    """Run the page from picture to picture, and save what each part drew last."""
    plt.rcParams["figure.figsize"] = (6, 3.6)
    *parts, _ = re.split(r"!\[.*\]\((.*)\)", PAGE.read_text())
    names = {}
    for text, picture in zip(parts[::2], parts[1::2], strict=True):
        for example in doctest.DocTestParser().get_examples(text):
            exec(example.source, names)
        names["display"].figure_.savefig(PAGE.parent / picture, dpi=90)
        print(picture)


if __name__ == "__main__":
    main()
