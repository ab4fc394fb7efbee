"""A small picture of the rows behind a prediction: their targets, before and after adjustment."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._inference.explanation import Explanation
from .formatting import Unit, show
from .page import Element, element

WIDTH, LINE, LEFT, RIGHT, TOP, BOTTOM = 720, 24, 170, 20, 8, 26  # lengths of the picture
LONGEST_NAME = 22  # characters
LARGEST, SMALLEST = 8.0, 2.5  # radii
MARGIN = 0.04  # of the range of the values, at both ends


def dots(
    found: Explanation,
    prediction: float,
    interval: np.ndarray,
    y_true: float | None,
    unit: Unit,
    target_name: str,
) -> Element:
    """The picture: a filled dot is a target, a ring the adjusted target, the line the prediction.

    Larger dots have more weight.
    """
    rows = found.of_single_rows()
    targets, adjusted = rows.targets[:, 0], rows.adjusted[:, 0]
    known = [] if y_true is None else [float(y_true)]
    values = np.concatenate([targets, adjusted, interval, [prediction], known])
    low, high = values[np.isfinite(values)].min(), values[np.isfinite(values)].max()
    margin = MARGIN * ((high - low) or 1.0)

    def x(value: float) -> str:
        place = (value - low + margin) / (high - low + 2 * margin)
        return f"{LEFT + place * (WIDTH - LEFT - RIGHT):.1f}"

    bottom = TOP + LINE * len(targets)
    upright = {"y1": TOP, "y2": bottom}
    parts = [_band(x, interval, bottom)]
    parts += [element("line", x1=x(prediction), x2=x(prediction), class_="prediction", **upright)]
    parts += [
        element("line", x1=x(value), x2=x(value), class_="truth", **upright) for value in known
    ]
    sizes = LARGEST * np.sqrt(rows.weights / rows.weights.max())
    moved = not np.array_equal(targets, adjusted)
    for i, radius in enumerate(np.maximum(sizes, SMALLEST)):
        y, name = TOP + LINE * (i + 0.5), show(rows.names[i])
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        parts.append(element("text", name, x=LEFT - 12, y=y + 5, class_="name"))
        size = {"cy": y, "r": f"{radius:.1f}"}
        if moved:
            ends = {"x1": x(targets[i]), "x2": x(adjusted[i])}
            parts.append(element("line", y1=y, y2=y, class_="way", **ends))
            parts.append(element("circle", cx=x(adjusted[i]), class_="ring", **size))
        parts.append(element("circle", cx=x(targets[i]), class_="dot", **size))
    for value, anchor in ((low, "start"), (high, "end")):
        text = unit.show(value)
        parts.append(element("text", text, x=x(value), y=bottom + 18, text_anchor=anchor))
    legend = f"Dots: {target_name}. Larger dots have more weight. "
    legend += "Rings: adjusted to the query. " if moved else ""
    legend += "Line: the prediction, in its interval. " + (
        "Dashed: the true value." if known else ""
    )
    picture = element(
        "svg", parts, viewBox=f"0 0 {WIDTH} {bottom + BOTTOM}", role="img", aria_label=legend
    )
    return element("figure", picture, element("figcaption", element("bdi", legend)))


def _band(x: Any, interval: np.ndarray, bottom: int) -> Element:
    """The interval, behind the dots."""
    left, right = map(x, interval)
    width = f"{float(right) - float(left):.1f}"
    return element("rect", x=left, y=TOP, width=width, height=bottom - TOP, class_="interval")
