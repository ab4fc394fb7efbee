"""The page of an explorer, around a map that Bokeh draws."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np

from .._utils.validation import is_missing
from . import wording
from .dots import SHAPE
from .effects import effects_section
from .explored import Explored
from .formatting import (
    DIGITS,
    LEAST_DECIMALS,
    LEAST_SHARE,
    MOST_DECIMALS,
    SEPARATED,
    share,
    show,
    show_value,
)
from .page import Element, details, element, own_text, style, whole_page
from .report import LONG, LONGEST_BAR, MORE, MOST_COLUMNS
from .surprises import ODDS

SHEETS = "report.css", "explorer.css"
PROGRAM = "explorer.mjs"
MAP, DATA = "map", "data"  # names of elements
MOST_CLASSES, NEGLIGIBLE = 3, 0.005  # of a prediction, above this probability
UNKNOWN = "#8a8f98"  # colour of rows without a value
LINK = "#d6006c"  # colour of what leads to the rows behind a prediction
FEW, LARGE, SMALL = 5_000, 7, 4  # rows, and sizes of dots of at most so many, and of more
QUERY_LINE = "#111111"  # around queries
SHAPES = "Circles are stored rows, diamonds are queries. "
AXES = "Rows that are close to each other have similar features. The axes have no meaning."
WORTH = "A NeighborsReport of a row also shows what each difference is worth."
MOST_SHOWN = 6  # features of a group of equal rows
FAR = (
    "These targets differ from their predictions by more standard deviations than chance "
    "explains. They may be wrong."
)
IMPROBABLE = (
    f"The predicted class is at least {ODDS:.0f} times as probable as the label of the row, which "
    "may be wrong."
)
CHANCE, CHANCE_OF_CLASSES = "by chance", "by chance, if the probabilities are right"
IMPROBABILITY = "1 \N{MINUS SIGN} probability of the label"  # the error of a class
MOST_LISTED = 50  # rows to check, and groups of equal rows
MOST_EQUAL = 20  # rows of a group in the list
#: How texts and numbers are written, and how many columns are shown, as in a report.
LIMITS = {
    "digits": DIGITS,
    "leastDecimals": LEAST_DECIMALS,
    "mostDecimals": MOST_DECIMALS,
    "separated": SEPARATED,
    "leastShare": LEAST_SHARE,
    "long": LONG,
    "columns": MOST_COLUMNS,
    "more": MORE,
    "bar": LONGEST_BAR,
}
OTHERS = "othersWeight", "othersTarget", "othersAdjusted", "othersContribution"
RING: dict[str, Any] = {"fill_color": None, "line_color": LINK}
FRAME: dict[str, Any] = {
    "toolbar_location": "above",
    "match_aspect": True,  # distances are the same in all directions
    "output_backend": "webgl",
    "sizing_mode": "stretch_both",
    "background_fill_alpha": 0,
    "border_fill_alpha": 0,
    "outline_line_color": None,
}


def title_of(found: Explored) -> str:
    """What the page is about."""
    n_queries = len(found.names) - found.n_stored
    queries = f" and {_count(n_queries, 'query', 'queries')}" if n_queries else ""
    stored = _count(found.n_stored, "stored row", "stored rows")
    return f"Predictions of {found.target_name}: {stored}{queries}"


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def explorer_page(found: Explored, coverage: float, footer: Element) -> str:
    """The page, as HTML."""
    from bokeh.core.types import ID
    from bokeh.document import Document
    from bokeh.embed import json_item
    from bokeh.events import DocumentReady
    from bokeh.models import ColumnDataSource, CustomJS
    from bokeh.resources import Resources

    sources = {
        "rows": ColumnDataSource(_rows(found), name="rows"),
        "behind": ColumnDataSource(_lines(found)),
        "links": ColumnDataSource({name: [] for name in ("x0", "y0", "x1", "y1", "width")}),
    }
    colors = {mode: _color(found, mode) for mode in _modes(found)}
    plot, dots = _draw(found, sources, colors["target"])
    arguments = dots | {"colors": colors, "about": _about(found, coverage)}
    code = (files(__package__) / PROGRAM).read_text(encoding="utf-8")
    document = Document()
    document.add_root(plot)
    document.js_on_event(DocumentReady, CustomJS(args=sources | arguments, code=code, module=True))
    library = Resources(mode="inline", components=["bokeh", "bokeh-gl"]).js_raw
    data = json.dumps(json_item(plot, ID(MAP))).replace("<", "\\u003c")
    return whole_page(
        title_of(found),
        _body(found, footer),
        element("script", data, type="application/json", id=DATA),
        element("script", f"Bokeh.embed.embed_item(JSON.parse({DATA}.textContent))"),
        head=[*map(style, SHEETS), *(element("script", part) for part in library)],
        scripts=True,
    )


# -- what the map and the program read --------------------------------------------------------


def _rows(found: Explored) -> dict[str, Any]:
    """A column for each thing that is known of the rows."""
    answers = found.answers
    is_query = np.arange(len(found.names)) >= found.n_stored
    size = LARGE if len(found.names) <= FEW else SMALL
    columns = dict(zip("xy", found.xy.T, strict=True)) | {
        "size": np.where(is_query, LARGE + 3, size).astype(np.uint8),
        "marker": np.where(is_query, "diamond", "circle").tolist(),
        "name": [show(name) for name in found.names],
        "target": _coded(found, found.targets),
        "prediction": _coded(found, answers.predictions),
        "error": abs(answers.errors),
    }
    columns |= dict(zip(OTHERS, answers.others.T.astype(np.float32), strict=True))
    if found.classes is None:
        columns |= dict(zip(("low", "high"), answers.details.T, strict=True))
        columns["place"] = found.places.astype(np.int16)
    else:
        columns["chances"] = [_chances(found, each) for each in answers.details]
    return columns | {f"f{j}": values for j, values in enumerate(found.columns.values())}


def _coded(found: Explored, values: np.ndarray) -> np.ndarray:
    """Numbers as they are; of labels their numbers, NaN of one that is not known."""
    if found.classes is None:
        return values.astype(float)
    numbers = {label: float(i) for i, label in enumerate(found.classes)}
    return np.array([numbers.get(value, np.nan) for value in values])


def _chances(found: Explored, probabilities: np.ndarray) -> str:
    """The most probable classes of a prediction."""
    assert found.classes is not None
    likely = np.argsort(-probabilities, kind="stable")[:MOST_CLASSES]
    likely = likely[probabilities[likely] > NEGLIGIBLE]
    return ", ".join(f"{show(found.classes[i])}: {share(probabilities[i])}" for i in likely)


def _lines(found: Explored) -> dict[str, np.ndarray]:
    """The rows behind all predictions, row by row of the map."""
    answers = found.answers
    columns = {
        "row": answers.positions.astype(np.int32),
        "weight": answers.weights.astype(np.float32),
        "adjusted": answers.adjusted.astype(np.float32),
    }
    differs = np.moveaxis(answers.differs.astype(np.uint8), 2, 0)
    columns |= {f"differs{i}": each for i, each in enumerate(differs)}
    return {name: values.ravel() for name, values in columns.items()}


def _about(found: Explored, coverage: float) -> dict[str, Any]:
    """What the program needs beside the rows."""
    first = found.first_in_order
    order = np.argsort(-abs(found.answers.errors[first:]), kind="stable") + first
    classes = found.classes
    return {
        "target": found.target_name,
        "labels": None if classes is None else [show(label) for label in classes],
        "decimals": found.unit.decimals,
        "place": found.unit.place,
        "columns": [*found.columns],
        "pictures": found.pictures,
        "columnOrder": found.order.astype(np.uint8).ravel(),
        "coverage": f"{coverage:.0%}",
        "nStored": found.n_stored,
        "nNeighbors": found.answers.positions.shape[1],
        "order": order.astype(np.int32),
        "words": {name: text for name, text in vars(wording).items() if name.isupper()},
        "shape": asdict(SHAPE),
        "limits": LIMITS,
    }


def _color(found: Explored, mode: str) -> Any:
    """The colours of rows by their targets, predictions or errors."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Viridis256

    if found.classes is not None and mode != "error":
        n_classes = len(found.classes)
        palette, low, high = _palette(n_classes), -0.5, n_classes - 0.5
        return LinearColorMapper(palette=palette, low=low, high=high, nan_color=UNKNOWN)
    values = abs(found.answers.errors) if mode == "error" else found.targets
    known = values[np.isfinite(values.astype(float))].astype(float)
    low, high = np.quantile(known, [0.01, 0.99]) if len(known) else (0.0, 1.0)
    return LinearColorMapper(palette=Viridis256, low=low, high=high, nan_color=UNKNOWN)


def _palette(n_classes: int) -> list[str]:
    """A colour for each class."""
    from bokeh.palettes import Category10, Category20, Colorblind, Turbo256, interp_palette

    for palette in (Colorblind[8], Category10[10], Category20[20]):
        if n_classes <= len(palette):
            return list(palette[:n_classes])
    return list(interp_palette(Turbo256, n_classes))


def _draw(found: Explored, sources: dict[str, Any], color: Any) -> tuple[Any, dict[str, Any]]:
    """The map, and its dots, of stored rows and of queries."""
    from bokeh.models import BooleanFilter, CDSView, HoverTool, TapTool
    from bokeh.plotting import figure

    plot = figure(tools="pan,wheel_zoom,box_zoom,reset", active_scroll="wheel_zoom", **FRAME)
    plot.axis.visible = plot.grid.visible = False  # the directions have no meaning
    plot.toolbar.logo = None
    links = sources["links"]
    plot.segment("x0", "y0", "x1", "y1", source=links, line_width="width", line_color=LINK)
    is_stored = np.arange(len(found.names)) < found.n_stored
    looks = {"stored": (UNKNOWN, is_stored), "queries": (QUERY_LINE, ~is_stored)}
    dots = {  # queries are drawn last
        name: plot.scatter(
            "x",
            "y",
            source=sources["rows"],
            view=CDSView(filter=BooleanFilter(which.tolist())),
            size="size",
            marker="marker",
            fill_color={"field": "target", "transform": color},
            line_color=line,
            line_width=0.5 if name == "stored" else 1.5,
            nonselection_alpha=0.6 if name == "stored" else 1,
            selection_line_color=LINK,
        )
        for name, (line, which) in looks.items()
    }
    plot.scatter("x1", "y1", source=links, size=14, line_width=2, **RING)
    plot.scatter("x0", "y0", source=links, size=18, line_width=3, **RING)
    for each in dots.values():  # one tool of both would announce the queries alone
        plot.add_tools(
            HoverTool(renderers=[each], tooltips=None, visible=False, callback=_announce("hover"))
        )
    plot.add_tools(TapTool(renderers=[*dots.values()]))
    sources["rows"].selected.js_on_change("indices", _announce("tap"))
    return plot, dots


def _announce(name: str) -> Any:
    """What happens on the map, as an event for the program."""
    from bokeh.models import CustomJS

    code = f"dispatchEvent(new CustomEvent('nona-{name}', {{detail: [cb_obj, cb_data]}}))"
    return CustomJS(code=code)


# -- the page around the map ------------------------------------------------------------------


def _body(found: Explored, footer: Element) -> Element:
    """Choices, the map, the report of a row and the two lists."""
    count = len(found.names) - found.first_in_order
    modes = [element("option", label, value=mode) for mode, label in _modes(found).items()]
    has_queries = found.n_stored < len(found.names)
    switch = element("input", id="stored", type="checkbox", checked="")
    slider = element("input", id="slider", type="range", min=1, max=count, value=1)
    return element(
        "div",
        element("h1", own_text(title_of(found))),
        element(
            "form",
            element("label", "Colour ", element("select", modes, id="color")),
            element("div", id="legend"),
            element("label", _slider_name(found), slider),
            element("output", id="place", for_="slider"),
            element("label", "Name ", element("input", id="name", type="search")),
            element("label", switch, " Stored rows") if has_queries else None,
        ),
        element("p", f"{SHAPES if has_queries else ''}{AXES}", class_="soft"),
        element(
            "main",
            element("div", element("div", id="tip", hidden=""), id=MAP),
            element("article", id="report", aria_live="polite"),
        ),
        element("p", WORTH, class_="soft"),
        effects_section(found.effects, found.target_name, found.unit),
        _to_check(found),
        _equal(found),
        footer,
        class_="nona-report nona-explorer",
    )


def _slider_name(found: Explored) -> str:
    known = np.isfinite(found.answers.errors[found.first_in_order :]).any()
    return "Predictions, the largest error first " if known else "Predictions "


def _modes(found: Explored) -> dict[str, str]:
    """What colours may stand for, by the columns of rows."""
    error = "absolute error" if found.classes is None else IMPROBABILITY
    return {"target": found.target_name, "prediction": "prediction", "error": error}


def _to_check(found: Explored) -> Element | None:
    """A list of the rows whose target contradicts their prediction."""
    rows, by_chance = found.to_check.rows, found.to_check.by_chance
    what = FAR if found.classes is None else IMPROBABLE
    chance = CHANCE if found.classes is None else CHANCE_OF_CLASSES
    number = f"About {by_chance:,.0f} are" if by_chance >= 0.5 else "Less than one is"
    lines = [element("li", _button(found, row)) for row in rows[:MOST_LISTED]]
    text = element("p", f"{what} The most surprising are first. {number} expected {chance}.")
    title = f"Targets to check ({_shown_of(len(rows))})"
    return details(title, text, element("ol", lines)) if lines else None


def _equal(found: Explored) -> Element | None:
    """A list of the groups of rows that are equal in the learned space."""
    groups = found.equal
    lines = [
        element(
            "li", [_button(found, row) for row in rows[:MOST_EQUAL]], _features(found, rows[0])
        )
        for rows in groups[:MOST_LISTED]
    ]
    text = element(
        "p", "Rows of identical features. The groups whose targets differ most are first."
    )
    title = f"Equal rows (groups: {_shown_of(len(groups))})"
    return details(title, text, element("ol", lines)) if lines else None


def _features(found: Explored, row: int) -> Element | None:
    """The first features of a row, in a line."""
    if found.pictures or not found.columns:
        return None
    shown = [
        f"{name}: {show_value(values[row])}"
        for name, values in [*found.columns.items()][:MOST_SHOWN]
    ]
    return element("div", own_text(", ".join(shown)), class_="soft")


def _shown_of(number: int) -> str:
    """How many lines a list has."""
    return f"{number:,}" if number <= MOST_LISTED else f"the first {MOST_LISTED} of {number:,}"


def _button(found: Explored, row: int) -> Element:
    """A button that shows a row."""
    target = found.targets[row]
    known = "" if is_missing(target) else f": {found.unit.show(target)}"
    text = own_text(f"{show(found.names[row])}{known}")
    return element("button", text, type="button", data_row=row)
