"""Pages of HTML in one file: numbers in words, pictures of rows, and templates."""

from __future__ import annotations

import base64
import datetime
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from numbers import Real
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from sklearn.utils.validation import _num_samples

from .._utils.files import as_path, destination, put_in_place
from .._utils.tables import INEXACT, free_name, is_frame
from .._utils.validation import are_missing, check_flag, is_missing, object_array
from .._version import __version__
from ..explanation import ComparedColumn, compare_columns, rows_of_bank

MINUS = "\N{MINUS SIGN}"
MOST_DECIMALS = 6  # numbers with more decimals have an exponent
DIGITS = 6  # of a feature, and of the largest amount
LEAST_DECIMALS = 2  # of a feature that is not whole
SEPARATED = 10_000  # larger numbers have separated thousands; years are smaller
LARGEST_LOG = 700.0  # its exponential is finite
LEAST_SHARE = 0.0005  # the smallest share that is not written as 0


#: Texts of tables and pictures. Reports and the explorer's program fill in the values.
WORDS = {
    "beside": "The query and the rows behind its prediction",
    "adjusted": "adjusted to the query",
    "contribution": "contribution",
    "one_row": "One row makes up {share} of the prediction.",
    "some_rows": "These {n} rows make up {share} of the prediction.",
    "marked": " Yellow: the largest differences of each row, relative to the column's spread.",
    "differs": " (differs)",
    "adds": "The weighted mean of all rows is {mean}; the adjustment adds {amount}.",
    "takes": "The weighted mean of all rows is {mean}; the adjustment subtracts {amount}.",
    "dots": "Dots: {target}. Larger dots have more weight.",
    "rings": " Rings: adjusted to the query.",
    "line": " Line: the prediction, in its interval.",
    "dashed": " Dashed: the true value.",
    "further": "{n} further columns",
}


@dataclass(frozen=True)
class Unit:
    """The decimals of given and of computed numbers of one unit."""

    decimals: int | None = None  # of given numbers. None: the values are labels of classes
    place: int | None = None  # the decimals to which computed numbers are rounded; -2: to hundreds

    @classmethod
    def of(cls, values: Iterable[Any], width: float = 0.0) -> Unit:
        """Choose decimals so that the largest value has at least three digits.

        Computed numbers have three digits of an interval's width, if it is known.
        """
        given = [abs(float(v)) for v in values if isinstance(v, Real)]
        largest = max((value for value in given if math.isfinite(value)), default=0.0)
        if not largest:
            return cls(0, 0)
        power = math.floor(math.log10(largest))
        decimals = max(0, 2 - power)
        if not 0 < width < math.inf:
            return cls(decimals, decimals)
        place = min(2 - math.floor(math.log10(width)), DIGITS - 1 - power)
        return cls(max(decimals, place), place)

    def show(self, value: Any) -> str:
        """Return the text of a given number or a label. It is empty for NaN."""
        return _written(value, self.decimals)

    def rounded(self, value: Any) -> str:
        """Return the text of a computed number or a label. It is empty for NaN."""
        return _written(value, self.place)

    def signed(self, value: float) -> str:
        """Return the text of a computed amount with its sign. It is empty if rounded to 0."""
        text = _written(value, self.place, "+")
        return text if any(digit in text for digit in "123456789") else ""


def _written(value: Any, place: int | None, sign: str = "") -> str:
    """Return the text of a number with `place` decimals, or of a label. It is empty for NaN."""
    if place is None or not isinstance(value, Real):
        return show(value)
    if math.isnan(value):
        return ""
    if place > MOST_DECIMALS:
        text = f"{value:{sign}.3g}"
    else:  # z: -0 is written as 0
        text = f"{round(float(value), place):{sign}z,.{max(place, 0)}f}"
    return text.replace("-", MINUS)


def share(value: float) -> str:
    """Return the text of a share in per cent."""
    if 0 < value < LEAST_SHARE:
        return "<0.1%"
    return f"{value:.0%}" if value >= 0.095 or not value else f"{value:.1%}"


def signed_share(value: float) -> str:
    """Return the text of a share in per cent with its sign. It is empty if rounded to 0."""
    text = f"{value:+.0%}".replace("-", MINUS)
    return "" if text[1:] == "0%" else text


def odds(logarithm: float) -> str:
    """Return the text of odds, given their logarithm."""
    value = math.exp(min(logarithm, LARGEST_LOG))
    if 0.1 <= value < SEPARATED * 100:
        return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
    return f"{value:.2g}".replace("-", MINUS)


def factor(logarithm: float) -> str:
    """Return the text of a factor of odds, given its logarithm. It is empty if rounded to 1."""
    text = odds(logarithm)
    return "" if text == "1.00" else f"×{text}"


def show_value(value: Any) -> str:
    """Return the text of a feature. Large numbers have separated thousands."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or is_missing(value):
        return show(value)
    number = float(value)
    if not math.isfinite(number) or abs(number) >= 1e15:
        return show(value)
    whole = number == round(number)
    place = 0 if whole else math.floor(math.log10(abs(number)))
    decimals = 0 if whole else max(LEAST_DECIMALS, DIGITS - 1 - place)
    if decimals > 2 * MOST_DECIMALS:
        text = f"{number:.{DIGITS - 1}g}"
    else:
        text = f"{number:{',' if abs(number) >= SEPARATED else ''}.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if decimals else text
    return text.replace("-", MINUS)


def show(value: Any) -> str:
    """Return the text of an entry of a table."""
    if is_missing(value):
        return "missing"
    if isinstance(value, float | np.floating):
        number = float(value)
        return f"{number:.10g}" if abs(number) < 1e6 or number % 1 else f"{number:,.0f}"
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[s]").item()
    if isinstance(value, np.timedelta64):
        value = value.astype("timedelta64[us]").item()
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ").removesuffix(" 00:00:00")
    return str(value)


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text. An ellipsis replaces a longer end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def place(value: Any, low: float, high: float, start: float, end: float, margin: float) -> Any:
    """Return positions of values on a scale from `low` to `high`, with margins at both ends."""
    margin *= (high - low) or 1.0
    return start + (end - start) * ((value - low + margin) / (high - low + 2 * margin))


MOST_COLUMNS = 12  # of a table, and classes, that are shown at once
MORE = 3  # columns beyond these that are not folded either, if no further ones follow
LONGEST_BAR = 3.5  # em
SHEET = "report.css"  # the style sheet of reports
UNUSUAL = 0.05  # the largest applicability of an unusual query
#: Lengths of the picture of the rows behind a prediction, which an explorer draws as well.
SHAPE: dict[str, Any] = {
    "width": 720,
    "line": 24,
    "left": 170,
    "right": 20,
    "top": 8,
    "bottom": 26,
    "name": 22,  # characters
    "largest": 8.0,  # radii
    "smallest": 2.5,
    "margin": 0.04,  # of the range of the values, at both ends
}
MOST_CHARACTERS = 201  # of a text, with the mark of its cut end
MOST_PIXELS = 48  # of a picture's longer side
CHANNELS = 1, 3, 4  # grey, colours, colours with transparency
TABLE, TEXTS, IMAGES = "a table", "texts", "images"


@dataclass(frozen=True)
class Appearance:
    """The shown features of a bank's rows, by position, and of queries."""

    kind: str = TABLE  # or TEXTS, or IMAGES
    columns: Sequence[ComparedColumn] = ()  # of a table
    row_items: Any = ()  # the texts or images
    query_items: Any = ()

    @classmethod
    def of(cls, estimator: Any, features: Any, X: Any, n_queries: int = 0) -> Appearance:
        """Read the shown features of the bank's rows and of the queries. Both may be None."""
        if features is None:
            return cls()
        kind = kind_of(features)
        if X is not None and kind_of(X) != kind:
            raise ValueError(
                "features and query_features, which are X by default, must be of one kind, got "
                f"{kind} and {kind_of(X)}"
            )
        if X is not None and _num_samples(X) != n_queries:
            raise ValueError(
                f"query_features must have a row for each of {n_queries} queries, got "
                f"{_num_samples(X)}"
            )
        if kind == TABLE:
            columns = compare_columns(estimator, X, features)
            if X is None:
                columns = [column.among_rows(np.arange(0)) for column in columns]
            return cls(kind, columns)
        items = _array(features)[rows_of_bank(estimator.bank_, features)]
        return cls(kind, row_items=items, query_items=items[:0] if X is None else _array(X))

    def shown(self, positions: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """Return the chosen columns, texts or pictures of bank rows, followed by all queries."""
        if self.kind == TABLE:
            columns: dict[str, np.ndarray] = {}
            for j in chosen:
                column = self.columns[j]
                values = np.concatenate([column.rows[positions], column.queries])
                columns[free_name(column.name, columns)] = _plain(values)
            return columns
        items = [*self.row_items[positions], *self.query_items]
        if self.kind == TEXTS:
            return {"text": object_array([shortened(item, MOST_CHARACTERS) for item in items])}
        low, high = float(np.nanmin(self.row_items)), float(np.nanmax(self.row_items))
        return {"picture": object_array([_picture(item, low, high) for item in items])}

    def incomplete(self, positions: np.ndarray, n_rows: int) -> np.ndarray:
        """Return whether bank rows, then all queries, have more gaps than values, (n_rows,)."""
        gaps = np.zeros(n_rows)
        for column in self.columns:
            of_rows, of_queries = column.values
            gaps += are_missing(np.concatenate([of_rows[positions], of_queries]))
        return gaps > len(self.columns) / 2


def kind_of(X: Any) -> str:
    """Return the kind of features: a table, texts or images."""
    if is_frame(X):
        return TABLE
    values = _array(X)
    if values.ndim == 1 and all(isinstance(value, str) for value in values):
        return TEXTS
    return IMAGES if values.ndim in (3, 4) else TABLE


def _array(X: Any) -> np.ndarray:
    """Return texts or images as an array."""
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(f"features must be of one shape to be shown: {error!s:.200}") from error


def _plain(values: np.ndarray) -> np.ndarray:
    """Return numbers unchanged, and values of another type as texts."""
    if values.dtype.kind == "f" or (values.dtype.kind in "iu" and (abs(values) < INEXACT).all()):
        return values
    return object_array([shortened(show(value), MOST_CHARACTERS) for value in values])


def _picture(image: np.ndarray, low: float, high: float) -> str:
    """Return a small picture as a data URL. `low` is black and `high` is white."""
    from PIL import Image

    if image.ndim == 3 and image.shape[2] not in CHANNELS and image.shape[0] in CHANNELS:
        image = np.moveaxis(image, 0, 2)  # torch's channels come first
    if image.ndim == 3 and image.shape[2] not in CHANNELS:
        raise ValueError(f"features must be images of 1, 3 or 4 channels, got {image.shape}")
    levels = (np.nan_to_num(image.astype(float), nan=low) - low) * (255 / ((high - low) or 1))
    picture = Image.fromarray(levels.clip(0, 255).round().astype(np.uint8).squeeze())
    picture.thumbnail((MOST_PIXELS, MOST_PIXELS))
    file = io.BytesIO()
    picture.save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


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
    def of_weight(cls, text: str, share_of_largest: float) -> Cell:
        """Return the cell of a weight, with a bar as long as its share of the largest."""
        return cls(text, bar=f"{LONGEST_BAR * share_of_largest:.1f}")

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


def footer(estimator: Any, n_rows: int) -> str:
    """Return the text of a footer: the estimator, the version and the date."""
    return (
        f"{type(estimator).__name__} of nona_sklearn {__version__}, "
        f"{n_rows:,} stored rows, {datetime.date.today().isoformat()}"
    )


def radii_of(weights: np.ndarray) -> np.ndarray:
    """Return the radii of the marks of rows, whose areas are as their weights."""
    return np.maximum(SHAPE["largest"] * np.sqrt(weights / weights.max()), SHAPE["smallest"])


class Page:
    """A page of HTML that :meth:`save` writes."""

    title: str
    _page: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the page as one file of HTML, which needs no network.

        Parameters
        ----------
        path : str or path-like
            The file, such as "decision.html". A name without an ending gets ".html".
        overwrite : bool, default=False
            Whether to replace an existing file.

        Raises
        ------
        FileExistsError
            If the file exists and `overwrite` is False.
        ValueError
            If the name has the ending of another format, such as ".pdf".

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import NeighborsReport
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> report = NeighborsReport(knn.fit(X, y), [[84]], features=X)
        >>> report
        <NeighborsReport: Prediction of target for the query>
        >>> report.save(Path(tempfile.mkdtemp(), "decision.html"))
        """
        check_flag("overwrite", overwrite)
        file = as_path("path", path)
        if file.suffix.lower() in OTHER_FORMATS:
            raise ValueError(
                f"path must end in .html, got {str(file)!r}: a browser prints the page as PDF"
            )
        if not (file.suffix or file.exists()):  # with an ending, a browser opens it
            file = file.with_name(f"{file.name}.html")
        with put_in_place(destination(file, overwrite)) as place:
            place.write_text(self._page, encoding="utf-8")


class Report(Page):
    """A page of one article, which a notebook shows as well."""

    _article: str

    def _write(self, title: str, template: str, **values: Any) -> None:
        """Make the page of a template."""
        self.title, self._article = title, render(template, title=title, **values)
        self._page = whole_page(title, self._article, sheets=[source(SHEET)])

    def _repr_html_(self) -> str:
        """Return the HTML of the report, for a notebook."""
        return f"<style>{source(SHEET)}</style>{self._article}"
