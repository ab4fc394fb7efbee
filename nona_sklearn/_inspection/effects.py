"""What columns add to predictions, in parts by row, and as small charts on one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._data.embedded import Embedded
from .._estimators.attributions import additive_trend
from .._estimators.feature_comparison import ComparedColumn
from .displays.effect import EffectDisplay, by_value
from .formatting import Unit, share, show_value
from .page import Element, element, own_text

MOST_CHARTS = 6
MOST_BARS = 8  # of a column of categories: those of the lowest and of the highest effects
FEW = 12  # different numbers that have a dot each
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320, 190, 66, 10, 8, 22  # lengths of a chart
MARGIN = 0.03  # of the range of the effects, at both ends
NAMES, BAR, APART = 120, 18, 55  # width of names, height of a bar with its gap, between labels
LONGEST_NAME = 16  # characters
ABOUT = (
    "What a column adds to the predicted {target}, beside the mean; the same in every row. What "
    "columns do together is not in it: {share} of the variance of the predictions."
)
LARGEST = " Of {of} columns, these {n} have the largest mean effects. All charts have one scale."


@dataclass(frozen=True)
class Effects:
    """What columns add to the predictions of rows.

    Parameters
    ----------
    displays : list of EffectDisplay
        Of the columns with the largest mean absolute effects, the largest first.
    n_columns : int
        How many columns there are.
    together : float
        The variance of what columns do together, as a share of that of the predictions.
    """

    displays: list[EffectDisplay]
    n_columns: int
    together: float

    @classmethod
    def of(
        cls, features: list[ComparedColumn], parts: np.ndarray, target_name: str
    ) -> Effects | None:
        """Of the columns and parts of some rows, unless no column has an effect."""
        own, together = parts[:, :-1], parts[:, -1]
        sizes = abs(own).mean(axis=0)
        order = np.argsort(-sizes, kind="stable")[:MOST_CHARTS]
        displays = [
            EffectDisplay(*by_value(features[j].shown, own[:, j]), features[j].name, target_name)
            for j in order[sizes[order] > 0]
        ]
        rest = together.var() / (parts.sum(axis=1).var() or 1.0)
        return cls(displays, own.shape[1], float(rest)) if displays else None


def parts_of(
    model: Any, features: list[ComparedColumn], stored: Embedded, query: Embedded | None
) -> np.ndarray | None:
    """What each column adds to predictions of numbers, and what columns do together.

    Returns (n_stored + n_queries, n_columns + 1), beside the mean, of a model whose columns are
    the features; None without an additive part.
    """
    estimator = model.estimator
    if is_classifier(estimator) or additive_trend(estimator) is None:
        return None
    names = [feature.name for feature in features]
    fitted = [*getattr(estimator, "feature_names_in_", names)]
    same = len(names) == estimator.n_features_in_ and fitted == names and not model.steps
    if not same or model.transformers:
        return None
    rows = [stored] if query is None else [stored, query]
    tables = [model.attribute_predictions(each) for each in rows]
    columns = [*tables[0]][2:-1]  # after the mean, and before the prediction
    return np.concatenate([np.stack([np.asarray(t[c]) for c in columns], 1) for t in tables])


# -- charts ------------------------------------------------------------------------------------


def effects_section(effects: Effects | None, target_name: str, unit: Unit) -> Element | None:
    """The charts, below the line that says what they show."""
    if effects is None:
        return None
    displays = effects.displays
    text = ABOUT.format(target=target_name, share=share(effects.together))
    if len(displays) < effects.n_columns:
        text += LARGEST.format(n=len(displays), of=effects.n_columns)
    scale = _Scale.of(np.concatenate([each.effects for each in displays]))
    charts = element("div", [_chart(each, scale, unit) for each in displays], class_="effects")
    return element("section", element("h2", "Effects"), element("p", own_text(text)), charts)


@dataclass(frozen=True)
class _Scale:
    """The effects from `low` to `high`, which all charts have in common.

    Parameters
    ----------
    low, high : float
        The lowest and the highest effect, and 0 is between them.
    step : float
        Between the lines of the scale: a round number, the largest that is on it.
    """

    low: float
    high: float
    step: float

    @classmethod
    def of(cls, effects: np.ndarray) -> _Scale:
        """Choose the step for some effects, which are not all 0."""
        low, high = min(0.0, effects.min()), max(0.0, effects.max())
        largest = max(high, -low)
        power = 10.0 ** math.floor(math.log10(largest))
        digit = next(digit for digit in (5, 2, 1) if digit * power <= largest)
        return cls(low, high, digit * power)

    @property
    def marks(self) -> list[float]:
        """Where it has lines."""
        first, last = math.ceil(self.low / self.step), math.floor(self.high / self.step)
        return [i * self.step for i in range(first, last + 1)]

    def place(self, effects: Any) -> Any:
        """How far effects are along it, from 0 to 1."""
        margin = MARGIN * (self.high - self.low)
        return (effects - self.low + margin) / (self.high - self.low + 2 * margin)

    def write(self, mark: float) -> str:
        """The number at a line: a multiple of the step, which has one digit."""
        return Unit(place=-math.floor(math.log10(self.step))).signed(mark) or "0"


def _chart(display: EffectDisplay, scale: _Scale, unit: Unit) -> Element:
    """The effects of a column."""
    draw = _curve if display.values.dtype.kind in "iufmM" else _bars
    height, parts = draw(display, scale)
    least, most = (
        f"{unit.signed(display.effects[i]) or 0} at {show_value(display.values[i])}"
        for i in (display.effects.argmin(), display.effects.argmax())
    )
    label = f"{display.feature_name}: from {least} to {most}"
    view = f"0 0 {WIDTH} {height:.0f}"
    picture = element("svg", parts, viewBox=view, role="img", aria_label=label)
    return element("figure", element("figcaption", own_text(display.feature_name)), picture)


def _curve(display: EffectDisplay, scale: _Scale) -> tuple[float, list[Element]]:
    """A curve over numbers or dates, with a dot for each of a few."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    values = display.values.astype(float if display.values.dtype.kind in "iuf" else np.int64)
    x = LEFT + (right - LEFT) * (values - values[0]) / ((values[-1] - values[0]) or 1)
    parts = []
    for mark in scale.marks:
        y = f"{bottom - (bottom - TOP) * scale.place(mark):.1f}"
        parts.append(_line(mark, x1=LEFT, x2=right, y1=y, y2=y))
        parts.append(element("text", scale.write(mark), x=LEFT - 6, y=y, dy=4, class_="name"))
    drawn = np.unique(x.round(), return_index=True)[1]  # one point for each unit of the width
    y = bottom - (bottom - TOP) * scale.place(display.effects)
    points = [(f"{x[i]:.1f}", f"{y[i]:.1f}") for i in drawn]
    parts.append(element("polyline", points=" ".join(map(",".join, points)), class_="curve"))
    if len(points) <= FEW:
        parts += [element("circle", cx=cx, cy=cy, r=3, class_="dot") for cx, cy in points]
    for i, at, anchor in ((0, LEFT, "start"), (-1, right, "end")):
        text = show_value(display.values[i])
        parts.append(element("text", text, x=at, y=HEIGHT - 6, text_anchor=anchor))
    return HEIGHT, parts


def _bars(display: EffectDisplay, scale: _Scale) -> tuple[float, list[Element]]:
    """A bar for each category, of many for the lowest and the highest."""
    lines = [*zip(map(str, display.values), display.effects, strict=True)][::-1]  # highest first
    if (others := len(lines) - MOST_BARS) > 1:
        half = MOST_BARS // 2
        lines = [*lines[:half], (f"{others} others", math.nan), *lines[-half:]]
    bottom = TOP + BAR * len(lines)

    def x(effect: float) -> float:
        return NAMES + (WIDTH - NAMES - RIGHT) * float(scale.place(effect))

    zero, marks, parts = x(0.0), scale.marks, []
    for mark in marks:
        at = f"{x(mark):.1f}"
        parts.append(_line(mark, x1=at, x2=at, y1=TOP, y2=bottom))
        if mark == 0 or (mark in (marks[0], marks[-1]) and abs(x(mark) - zero) > APART):
            place = {"x": at, "y": bottom + 16, "text_anchor": "middle"}
            parts.append(element("text", scale.write(mark), **place))
    for i, (name, effect) in enumerate(lines):
        y, is_known = TOP + BAR * i, not math.isnan(effect)
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        look = "name" if is_known else "name others"
        parts.append(element("text", name, x=NAMES - 6, y=y + 13, class_=look))
        if is_known:
            left, right = sorted([zero, x(effect)])
            size = {"width": f"{right - left:.1f}", "height": BAR - 6}
            parts.append(element("rect", x=f"{left:.1f}", y=y + 3, class_="dot", **size))
    return bottom + BOTTOM, parts


def _line(mark: float, **ends: Any) -> Element:
    """A line of the scale."""
    return element("line", class_="mark" if mark else "zero", **ends)
