"""Pages of HTML in one file, rendered from the templates beside this module."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .._utils.files import as_path, destination, put_in_place
from .._utils.validation import check_flag, is_missing
from .._version import __version__
from .formatting import WORDS, share, shortened, show, show_value

TEMPLATES = "templates"
#: A page may load only its own content. A page with scripts is drawn by Bokeh, which makes
#: functions and modules from texts.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
SCRIPTS = "; script-src 'unsafe-inline' 'unsafe-eval' blob:"
OTHER_FORMATS = ".pdf", ".png", ".svg", ".docx", ".json", ".csv", ".md", ".txt"
#: Characters that change the direction of the text after them.
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
LONG, LONGEST = 40, 150  # characters above which a feature is a text, and its rest is folded


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str = ""  # the whole text, or the beginning of a long text
    rest: str = ""  # the rest of a long text, which the page shows on demand
    look: str = ""  # the class in the style sheet
    picture: str = ""  # address of a picture, in place of a text
    bar: str = ""  # length of a bar under the text, in em
    differs: bool = False  # whether the column is one in which row and query differ most

    @classmethod
    def of_feature(cls, value: Any, differs: bool = False) -> Cell:
        """Return the cell of a feature. The rest of a long text is folded."""
        text = show_value(value)
        look = "text" if len(text) > LONG else ""
        if len(text) <= LONGEST:
            return cls(text, look=look, differs=differs)
        return cls(f"{text[:LONGEST]}…", f"…{text[LONGEST:]}", look, differs=differs)

    @property
    def classes(self) -> str:
        """Return the classes in the style sheet. The class of numbers keeps them on one line."""
        is_number = not self.rest and (self.text[-1:].isdigit() or self.text[-1:] == "%")
        names = self.look, "differs" if self.differs else "", "number" if is_number else ""
        return " ".join(filter(None, names))


@dataclass(frozen=True)
class Table:
    """A table that scrolls where it is too wide."""

    caption: str  # the title of the table
    head: list[str]  # names of the columns
    lines: list[list]  # a line starts with its name
    look: str = "plain"  # "beside": a rule follows the second column, which is the query's

    @property
    def rows(self) -> list[list[Cell]]:
        """Return the cells of the head, followed by the cells of the lines."""
        rows: list[list] = [self.head, *self.lines]
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]


ENVIRONMENT = Environment(
    loader=PackageLoader(__package__, TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.globals["words"] = WORDS
ENVIRONMENT.filters |= {
    "decimal": "{:.1f}".format,  # in a picture
    "percent": "{:.0%}".format,
    "share": share,
    "shortened": shortened,
    "show": show,
    "show_value": show_value,
}
ENVIRONMENT.tests["missing"] = is_missing


def render(template: str, **values: Any) -> str:
    """Return the HTML of a template with escaped values."""
    return ENVIRONMENT.get_template(template).render(values).strip()


def source(name: str) -> str:
    """Return the text of a style sheet or a program."""
    return (files(__package__) / TEMPLATES / name).read_text(encoding="utf-8")


def whole_page(
    title: str, body: str, *, sheets: list[str], programs: list[str] | None = None
) -> str:
    """Return the HTML of a page that needs no further file, and can load none."""
    return render(
        "page.html",
        title=DIRECTIONS.sub("", title),
        policy=POLICY if programs is None else POLICY + SCRIPTS,
        sheets=sheets,
        programs=programs or [],
        body=body,
    )


def footer(estimator: Any) -> str:
    """Return the text of a footer: the estimator, the version and the date."""
    return (
        f"{type(estimator).__name__} of nona_sklearn {__version__}, "
        f"{len(estimator.bank_):,} stored rows, {datetime.date.today().isoformat()}"
    )


def write_page(page: str, path: Any, overwrite: Any) -> None:
    """Write a page as a file. Only `overwrite` lets it replace a file that exists.

    A name without an ending gets ".html", so that a browser opens the file.
    """
    check_flag("overwrite", overwrite)
    path = as_path("path", path)
    if path.suffix.lower() in OTHER_FORMATS:
        raise ValueError(
            f"path must end in .html, got {str(path)!r}: a browser prints the page as PDF"
        )
    if not (path.suffix or path.exists()):
        path = path.with_name(f"{path.name}.html")
    with put_in_place(destination(path, overwrite)) as place:
        place.write_text(page, encoding="utf-8")
