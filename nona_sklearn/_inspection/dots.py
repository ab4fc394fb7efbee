"""A small picture of the rows behind a prediction: their targets, before and after adjustment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._inference.explanation import Explanation
from .formatting import Unit, show
from .page import Element, element
from .wording import DASHED, DOTS, LINE, RINGS


@dataclass(frozen=True)
class Shape:
    """Lengths of the picture, which an explorer draws as well."""

    width: int = 720
    line: int = 24
    left: int = 170
    right: int = 20
    top: int = 8
    bottom: int = 26
    name: int = 22  # characters
    largest: float = 8.0  # radii
    smallest: float = 2.5
    margin: float = 0.04  # of the range of the values, at both ends


SHAPE = Shape()


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
    given = np.concatenate([targets, known])
    values = np.concatenate([given, adjusted, interval, [prediction]])
    low, high = values[np.isfinite(values)].min(), values[np.isfinite(values)].max()
    margin = SHAPE.margin * ((high - low) or 1.0)

    def x(value: float) -> str:
        place = (value - low + margin) / (high - low + 2 * margin)
        return f"{SHAPE.left + place * (SHAPE.width - SHAPE.left - SHAPE.right):.1f}"

    bottom = SHAPE.top + SHAPE.line * len(targets)
    upright = {"y1": SHAPE.top, "y2": bottom}
    parts = [_band(x, interval, bottom)]
    parts += [element("line", x1=x(prediction), x2=x(prediction), class_="prediction", **upright)]
    parts += [
        element("line", x1=x(value), x2=x(value), class_="truth", **upright) for value in known
    ]
    sizes = SHAPE.largest * np.sqrt(rows.weights / rows.weights.max())
    moved = not np.array_equal(targets, adjusted)
    for i, radius in enumerate(np.maximum(sizes, SHAPE.smallest)):
        y, name = SHAPE.top + SHAPE.line * (i + 0.5), show(rows.names[i])
        name = name if len(name) <= SHAPE.name else f"{name[: SHAPE.name - 1]}…"
        parts.append(element("text", name, x=SHAPE.left - 12, y=y + 5, class_="name"))
        size = {"cy": y, "r": f"{radius:.1f}"}
        if moved:
            ends = {"x1": x(targets[i]), "x2": x(adjusted[i])}
            parts.append(element("line", y1=y, y2=y, class_="way", **ends))
            parts.append(element("circle", cx=x(adjusted[i]), class_="ring", **size))
        parts.append(element("circle", cx=x(targets[i]), class_="dot", **size))
    for value, anchor in ((low, "start"), (high, "end")):
        text = unit.show(value) if value in given else unit.rounded(value)
        parts.append(element("text", text, x=x(value), y=bottom + 18, text_anchor=anchor))
    legend = DOTS.format(target=target_name) + (RINGS if moved else "") + LINE
    legend += DASHED if known else ""
    picture = element(
        "svg",
        parts,
        viewBox=f"0 0 {SHAPE.width} {bottom + SHAPE.bottom}",
        role="img",
        aria_label=legend,
    )
    return element("figure", picture, element("figcaption", element("bdi", legend)))


def _band(x: Any, interval: np.ndarray, bottom: int) -> Element:
    """The interval, behind the dots."""
    left, right = map(x, interval)
    width = f"{float(right) - float(left):.1f}"
    return element(
        "rect", x=left, y=SHAPE.top, width=width, height=bottom - SHAPE.top, class_="interval"
    )
