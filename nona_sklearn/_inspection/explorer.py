"""An interactive map of the learned space, with the report of every prediction."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from .._data.names import warn_of_other_order
from .._utils.arrays import object_array
from .._utils.extras import import_extra
from .._utils.validation import check_fraction, check_integer, check_lengths, is_missing
from .answers import OutputAnswers
from .appearance import LONGEST_BAR, MORE, MOST_COLUMNS, SHAPE, Appearance
from .displays.learned import EffectDisplay
from .formatting import (
    DIGITS,
    LEAST_DECIMALS,
    LEAST_SHARE,
    MOST_DECIMALS,
    SEPARATED,
    WORDS,
    Unit,
    share,
    show,
)
from .map_data import LEAST_ODDS, Effects, MapData, collect_map_data
from .page import LONG, footer, render, source, whole_page, write_page

HEIGHT = 760  # pixels of the frame in a notebook
MAP = "map"  # the element in which Bokeh draws
MOST_CLASSES, NEGLIGIBLE = 3, 0.005  # shown classes of a prediction, above this probability
UNKNOWN = "#8a8f98"  # colour of rows without a value
LINK = "#d6006c"  # colour of the lines to the rows behind a prediction
FEW, LARGE, SMALL = 5_000, 7, 4  # dots are LARGE up to FEW rows, and SMALL for more rows
QUERY_LINE = "#111111"  # outline of queries
IMPROBABILITY = "1 \N{MINUS SIGN} probability of the label"  # the error of a class
MOST_SHOWN = 6  # features of a group of equal rows
MOST_LISTED = 50  # rows to check, and groups of equal rows
MOST_EQUAL = 20  # rows of a group in the list
#: The format of texts and numbers, and the number of shown columns. A report has the same.
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
REMAINDER = "othersWeight", "othersTarget", "othersAdjusted", "othersContribution"
RING: dict[str, Any] = {"fill_color": None, "line_color": LINK}
FRAME: dict[str, Any] = {
    "toolbar_location": "above",
    "match_aspect": True,  # both axes have the same scale
    "output_backend": "webgl",
    "sizing_mode": "stretch_both",
    "background_fill_alpha": 0,
    "border_fill_alpha": 0,
    "outline_line_color": None,
}
MOST_BARS = 8  # of a column of categories: the lowest and the highest effects
MARGIN = 0.03  # of the range of the effects, at both ends
#: Lengths of a chart of effects.
CHART = {
    "width": 320,
    "height": 190,  # of a curve
    "left": 66,
    "right": 10,
    "top": 8,
    "bottom": 22,
    "names": 120,  # width of the names of bars
    "name": 16,  # characters
    "bar": 18,  # height of a bar with its gap
    "apart": 55,  # least distance of labels
    "points": 12,  # a curve of at most so many has dots
}


class Explorer:
    """An interactive page, as :func:`explore` makes it.

    Attributes
    ----------
    title : str
        Title of the page.
    """

    def __init__(self, title: str, page: str):
        self.title, self._page = title, page

    def __repr__(self):
        return f"<Explorer: {self.title}>"

    def _repr_html_(self):
        """Return the HTML of the page in a frame, for a notebook."""
        return render("frame.html", page=self._page, height=HEIGHT, title=self.title)

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the page as one file of HTML, which needs no network.

        Parameters
        ----------
        path : str or path-like
            The file, such as "explorer.html".
        overwrite : bool, default=False
            Whether to replace an existing file.

        Raises
        ------
        FileExistsError
            If the file exists and `overwrite` is False.
        ValueError
            If the name has the ending of another format, such as ".pdf".
        """
        write_page(self._page, path, overwrite)


def explore(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    features: Any = None,
    query_features: Any = None,
    n_neighbors: int = 6,
    coverage: float = 0.9,
    max_rows: int = 50000,
    reducer: Any = None,
    random_state: Any = None,
) -> Explorer:
    """Make an interactive map of the learned space, with the rows behind every prediction.

    The page shows queries and stored rows. A stored row is left out of its own prediction. A
    click on a row draws lines to the rows behind its prediction. The picture and the table of its
    report, as in :class:`NeighborsReport`, are next to the map. A slider goes through the
    predictions from the largest error to the smallest. Colours show targets, predictions or
    errors. Charts show the effects of columns on predictions. One list contains rows whose targets
    are far from their predictions. A second list contains rows that are equal in the learned
    space.

    Parameters
    ----------
    model : estimator
        Fitted, of one output, as :func:`unwrap` takes it.
    X : {DataFrame, array-like} of shape (n_queries, n_features), optional
        Queries. None: the page shows stored rows only.
    y : array-like of shape (n_queries,), optional
        Targets of the queries, if they are known, in the units of the targets of fit.
    features : DataFrame, array or list, optional
        Features of the stored rows to show: the rows given to fit, followed by the rows of
        `add_neighbors`, as a table, images (n, height, width), optionally with channels, or texts.
        None: the page shows names and targets only, since the bank does not store features.
    query_features : DataFrame, array or list, optional
        Features of the queries to show. None: `X`.
    n_neighbors : int, default=6
        Largest number of rows behind a prediction to show.
    coverage : float, default=0.9
        Probability of the prediction intervals of a regressor.
    max_rows : int, default=50_000
        Number of rows to draw. If there are more stored rows, the rows behind the predictions of
        queries and a random sample are drawn. The rows behind the predictions of drawn rows are
        added.
    reducer : transformer, optional
        Its `fit_transform` reduces embeddings to at least two columns, and the first two are
        drawn. An example is ``umap.UMAP()``. Principal components by default.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of rows.

    Returns
    -------
    Explorer
        The page. A notebook shows it, and ``save(path)`` writes it as a file.

    Raises
    ------
    ImportError
        If Bokeh is not installed.
    ValueError
        If a parameter is invalid, `y` or `query_features` is given without `X`, the features of
        the stored rows and of the queries are not of one kind, or the model has several outputs.

    See Also
    --------
    NeighborsReport : The report of one prediction.
    EmbeddingDisplay : The same map as a picture.
    EffectDisplay : The effect of one column on predictions.

    Notes
    -----
    The function needs the extra ``explore``. The page takes about 1.5 MB for the drawing program,
    0.2 kB per row, and 12 bytes per number of a row. A page of 10,000 rows takes about 40 seconds.
    The time grows with the square of the number of rows.

    The charts need a regressor with ``similarity_="features"``, fitted to the columns of
    `features`, without steps before it and without transformed targets. They have the values of
    :class:`EffectDisplay`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from nona_sklearn import NONARegressor, explore
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0).fit(X, y)
    >>> explorer = explore(reg, [[84]], [420], features=X)
    >>> explorer.title
    'Predictions of target: 5 stored rows and 1 query'
    >>> explorer.save(Path(tempfile.mkdtemp(), "explorer.html"))
    """
    import_extra("explore", "bokeh", extra="explore")
    check_fraction("coverage", coverage)
    n_neighbors = check_integer("n_neighbors", n_neighbors)
    max_rows = check_integer("max_rows", max_rows, 2)
    for name, value, needed in [
        ("y", y, X),
        ("query_features", query_features, X),
        ("query_features", query_features, features),
    ]:
        if value is not None and needed is None:
            raise ValueError(f"{name} needs {'X' if needed is X else 'features'}, got it alone")
    if reducer is not None and (
        isinstance(reducer, type) or not hasattr(reducer, "fit_transform")
    ):
        raise TypeError(f"reducer must be a transformer, such as PCA(2), got {reducer!r:.100}")
    warn_of_other_order(X=X, y=y)
    answers = OutputAnswers.of_only("explore", model)
    if len(answers.bank) < 2:
        raise ValueError("the bank must have at least 2 rows to explore, it has 1")
    queries = None if X is None else answers.embed(X)
    n_queries = 0 if queries is None else len(queries)
    shown = X if query_features is None else query_features
    data = collect_map_data(
        answers,
        queries,
        _query_targets(answers, y, n_queries),
        Appearance.of(answers.bank, features, shown, n_queries),
        n_neighbors=min(n_neighbors, len(answers.bank)),
        coverage=coverage,
        max_rows=max_rows,
        reducer=reducer,
        random_state=random_state,
    )
    title = _title(data)
    return Explorer(title, _page(data, title, coverage, footer(answers.model.estimator)))


def _query_targets(answers: OutputAnswers, y: Any, n_queries: int) -> np.ndarray:
    """Return targets of queries, (q,), as numbers or labels; NaN or None if not known."""
    of_classes = answers.is_of_classes
    if y is None:
        return np.full(n_queries, None if of_classes else np.nan)
    values = column_or_1d(y, dtype=object if of_classes else np.float64)
    check_lengths(n_queries, len(values))
    if of_classes:
        return object_array([None if is_missing(value) else value for value in values])
    if np.isinf(values).any():
        raise ValueError(f"y must be finite, or NaN where it is not known, got {values.max()}")
    return values


def _title(data: MapData) -> str:
    """Return the title of the page."""
    n_queries = len(data.names) - data.n_stored
    title = f"Predictions of {data.target_name}: {data.n_stored:,} stored row"
    title += "" if data.n_stored == 1 else "s"
    if not n_queries:
        return title
    return f"{title} and {n_queries:,} {'query' if n_queries == 1 else 'queries'}"


def _page(data: MapData, title: str, coverage: float, footer_text: str) -> str:
    """Return the HTML of the page."""
    from bokeh.core.types import ID
    from bokeh.document import Document
    from bokeh.embed import json_item
    from bokeh.events import DocumentReady
    from bokeh.models import ColumnDataSource, CustomJS
    from bokeh.resources import Resources

    sources = {
        "rows": ColumnDataSource(_rows(data), name="rows"),
        "behind": ColumnDataSource(_lines(data)),
        "links": ColumnDataSource({name: [] for name in ("x0", "y0", "x1", "y1", "width")}),
    }
    error = "absolute error" if data.classes is None else IMPROBABILITY
    modes = {"target": data.target_name, "prediction": "prediction", "error": error}
    colors = {mode: _color(data, mode) for mode in modes}
    plot, dots = _draw(data, sources, colors["target"])
    arguments = dots | {"colors": colors, "about": _about(data, coverage)}
    document = Document()
    document.add_root(plot)
    program = CustomJS(args=sources | arguments, code=source("explorer.mjs"), module=True)
    document.js_on_event(DocumentReady, program)
    errors = data.predictions.errors[data.first_in_order :]
    body = render(
        "explorer.html",
        title=title,
        data=data,
        modes=modes,
        n_ordered=len(errors),
        has_errors=bool(np.isfinite(errors).any()),
        most_listed=MOST_LISTED,
        most_equal=MOST_EQUAL,
        most_shown=MOST_SHOWN,
        least_odds=LEAST_ODDS,
        target_name=data.target_name,
        unit=data.unit,
        **_effects(data.effects),
        footer=footer_text,
        map_id=MAP,
        map_json=json.dumps(json_item(plot, ID(MAP))).replace("<", "\\u003c"),
    )
    library = Resources(mode="inline", components=["bokeh", "bokeh-gl"]).js_raw
    sheets = [source("report.css"), source("explorer.css")]
    return whole_page(title, body, sheets=sheets, programs=library)


# -- data of the map and the program ----------------------------------------------------------


def _rows(data: MapData) -> dict[str, Any]:
    """Return the columns of the rows that the program reads, by name, (n,)."""
    predictions = data.predictions
    is_query = np.arange(len(data.names)) >= data.n_stored
    size = LARGE if len(data.names) <= FEW else SMALL
    columns = dict(zip("xy", data.xy.T, strict=True)) | {
        "size": np.where(is_query, LARGE + 3, size).astype(np.uint8),
        "marker": np.where(is_query, "diamond", "circle").tolist(),
        "name": [show(name) for name in data.names],
        "target": _coded(data, data.targets),
        "prediction": _coded(data, predictions.predictions),
        "error": abs(predictions.errors),
    }
    columns |= dict(zip(REMAINDER, predictions.remainder.T.astype(np.float32), strict=True))
    if data.classes is None:
        columns |= dict(zip(("low", "high"), predictions.details.T, strict=True))
        columns["place"] = data.decimals.astype(np.int16)
    else:
        columns["chances"] = [_chances(data, row) for row in predictions.details]
    return columns | {f"f{j}": values for j, values in enumerate(data.columns.values())}


def _coded(data: MapData, values: np.ndarray) -> np.ndarray:
    """Return numbers unchanged, or labels as their numbers, NaN for an unknown label, (n,)."""
    if data.classes is None:
        return values.astype(float)
    codes = {label: float(i) for i, label in enumerate(data.classes)}
    return np.array([codes.get(value, np.nan) for value in values])


def _chances(data: MapData, probabilities: np.ndarray) -> str:
    """Return the most probable classes of a prediction as a text."""
    assert data.classes is not None
    likely = np.argsort(-probabilities, kind="stable")[:MOST_CLASSES]
    likely = likely[probabilities[likely] > NEGLIGIBLE]
    return ", ".join(f"{show(data.classes[i])}: {share(probabilities[i])}" for i in likely)


def _lines(data: MapData) -> dict[str, np.ndarray]:
    """Return columns of the rows behind all predictions, (n * k,), in the order of the map."""
    predictions = data.predictions
    columns = {
        "row": predictions.positions.astype(np.int32),
        "weight": predictions.weights.astype(np.float32),
        "adjusted": predictions.adjusted.astype(np.float32),
    }
    differs = np.moveaxis(predictions.differs.astype(np.uint8), 2, 0)
    columns |= {f"differs{rank}": columns_of_rank for rank, columns_of_rank in enumerate(differs)}
    return {name: values.ravel() for name, values in columns.items()}


def _about(data: MapData, coverage: float) -> dict[str, Any]:
    """Return the values that the program needs besides the rows."""
    first = data.first_in_order
    order = np.argsort(-abs(data.predictions.errors[first:]), kind="stable") + first
    classes = data.classes
    return {
        "target": data.target_name,
        "labels": None if classes is None else [show(label) for label in classes],
        "decimals": data.unit.decimals,
        "place": data.unit.place,
        "columns": [*data.columns],
        "pictures": data.has_pictures,
        "columnOrder": data.column_order.astype(np.uint8).ravel(),
        "coverage": f"{coverage:.0%}",
        "nStored": data.n_stored,
        "nNeighbors": data.predictions.positions.shape[1],
        "order": order.astype(np.int32),
        "words": WORDS,
        "shape": SHAPE,
        "limits": LIMITS,
    }


def _color(data: MapData, mode: str) -> Any:
    """Return Bokeh's colour mapper for targets, predictions or errors."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Viridis256

    if data.classes is not None and mode != "error":
        n_classes = len(data.classes)
        palette, low, high = _palette(n_classes), -0.5, n_classes - 0.5
        return LinearColorMapper(palette=palette, low=low, high=high, nan_color=UNKNOWN)
    values = abs(data.predictions.errors) if mode == "error" else data.targets
    values = values[np.isfinite(values.astype(float))].astype(float)
    low, high = np.quantile(values, [0.01, 0.99]) if len(values) else (0.0, 1.0)
    return LinearColorMapper(palette=Viridis256, low=low, high=high, nan_color=UNKNOWN)


def _palette(n_classes: int) -> list[str]:
    """Return one colour per class."""
    from bokeh.palettes import Category10, Category20, Colorblind, Turbo256, interp_palette

    for palette in (Colorblind[8], Category10[10], Category20[20]):
        if n_classes <= len(palette):
            return list(palette[:n_classes])
    return list(interp_palette(Turbo256, n_classes))


def _draw(data: MapData, sources: dict[str, Any], color: Any) -> tuple[Any, dict[str, Any]]:
    """Return the map and its dots of stored rows and of queries."""
    from bokeh.models import BooleanFilter, CDSView, HoverTool, TapTool
    from bokeh.plotting import figure

    plot = figure(tools="pan,wheel_zoom,box_zoom,reset", active_scroll="wheel_zoom", **FRAME)
    plot.axis.visible = plot.grid.visible = False  # the directions have no meaning
    plot.toolbar.logo = None
    links = sources["links"]
    plot.segment("x0", "y0", "x1", "y1", source=links, line_width="width", line_color=LINK)
    is_stored = np.arange(len(data.names)) < data.n_stored
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
    for drawn in dots.values():  # a common tool would announce the queries alone
        plot.add_tools(
            HoverTool(renderers=[drawn], tooltips=None, visible=False, callback=_announce("hover"))
        )
    plot.add_tools(TapTool(renderers=[*dots.values()]))
    sources["rows"].selected.js_on_change("indices", _announce("tap"))
    return plot, dots


def _announce(name: str) -> Any:
    """Return Bokeh's callback that dispatches an event to the program."""
    from bokeh.models import CustomJS

    code = f"dispatchEvent(new CustomEvent('nona-{name}', {{detail: [cb_obj, cb_data]}}))"
    return CustomJS(code=code)


# -- charts of effects -------------------------------------------------------------------------


def _effects(effects: Effects | None) -> dict[str, Any]:
    """Return values for the template: charts of the effects of columns, on one scale."""
    if effects is None:
        return {"effects": None}
    scale = _Scale(np.concatenate([display.effects for display in effects.displays]))
    charts = [_Chart(display, scale) for display in effects.displays]
    return {"effects": effects, "charts": charts, "scale": scale, "lengths": CHART}


class _Scale:
    """The common scale of all charts: effects from `low` to `high`, which contain 0."""

    def __init__(self, effects: np.ndarray) -> None:
        self.low = min(0.0, effects.min())
        self.high = max(0.0, effects.max())
        largest = max(self.high, -self.low)
        power = 10.0 ** math.floor(math.log10(largest))
        # The distance of two lines is the largest round number that is on the scale.
        self.step = power * next(digit for digit in (5, 2, 1) if digit * power <= largest)

    @property
    def marks(self) -> list[float]:
        """Return the effects that have lines."""
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step)
        return [i * self.step for i in range(first, last + 1)]

    def write(self, mark: float) -> str:
        """Return the text at a line. The step, which the mark is a multiple of, has one digit."""
        return Unit(place=-math.floor(math.log10(self.step))).signed(mark) or "0"

    def between(self, start: float, end: float, effects: Any) -> Any:
        """Return positions of effects on a scale that is drawn from `start` to `end`."""
        margin = MARGIN * (self.high - self.low)
        share = (effects - self.low + margin) / (self.high - self.low + 2 * margin)
        return start + (end - start) * share


class _Chart:
    """The effects of a column: a curve over numbers or dates, or one bar per category."""

    def __init__(self, display: EffectDisplay, scale: _Scale) -> None:
        self.name = display.feature_name
        self.values = display.values
        self.effects = display.effects
        self.is_curve = self.values.dtype.kind in "iufmM"
        self.ends = self.effects.argmin(), self.effects.argmax()
        self.scale = scale

    def points(self) -> list[tuple[str, str]]:
        """Return the points of a curve, at most one per unit of the width."""
        right, bottom = CHART["width"] - CHART["right"], CHART["height"] - CHART["bottom"]
        values = self.values.astype(float if self.values.dtype.kind in "iuf" else np.int64)
        share = (values - values[0]) / ((values[-1] - values[0]) or 1)
        x = CHART["left"] + (right - CHART["left"]) * share
        y = self.scale.between(bottom, CHART["top"], self.effects)
        return [(f"{x[i]:.1f}", f"{y[i]:.1f}") for i in np.unique(x.round(), return_index=True)[1]]

    def bars(self) -> list[tuple[str, float | None]]:
        """Return names and effects of categories, the highest first, without a long middle."""
        bars = [*zip(map(str, self.values), self.effects, strict=True)][::-1]
        if (n_left_out := len(bars) - MOST_BARS) > 1:
            half = MOST_BARS // 2
            bars = [*bars[:half], (f"{n_left_out} others", None), *bars[-half:]]
        return bars
