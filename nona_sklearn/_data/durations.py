"""Targets of survival analysis: durations until an event, or until they are censored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._utils.validation import some_of
from .targets import check_targets, place_of, refuse_none

AS_NUMBERS = "y must hold durations and events as numbers"


@dataclass(frozen=True, eq=False)
class Durations:
    """Hold how long rows were observed, and whether the event ended it."""

    duration: np.ndarray  # (n,), at least 0
    event: np.ndarray  # bool (n,); False: censored
    weight: np.ndarray  # (n,), of the rows

    def __getitem__(self, rows: np.ndarray) -> Durations:
        return Durations(*(some_of(part, rows) for part in vars(self).values()))

    def hazards(self, log_risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what is at risk, and the cumulative hazard of risk 1, at each duration, (n,).

        It is Breslow's estimate, and with equal risks that of Nelson and Aalen.
        """
        order = self.duration.argsort()
        ordered, risks = self.duration[order], (self.weight * np.exp(log_risk))[order]
        first = np.searchsorted(ordered, ordered)
        at_risk = risks[::-1].cumsum()[::-1][first]
        events = (self.weight * self.event)[order]  # after the last of weight, no row is at risk
        hazards = np.divide(events, at_risk, out=np.zeros_like(events), where=events > 0)
        return (
            at_risk[np.searchsorted(ordered, self.duration)],
            hazards.cumsum()[np.searchsorted(ordered, self.duration, side="right") - 1],
        )


def read_durations(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return durations and events, float and bool (n,), of `y` in one of its forms, or raise."""
    refuse_none(y)
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names is not None:
        events = [name for name in names if y.dtype[name].kind == "b"]
        if len(names) != 2 or len(events) != 1:
            raise ValueError(
                "y must have two fields, one of which is boolean, for the event, got "
                f"{y.dtype!r:.200}"
            )
        (duration,) = {*names} - {*events}
        y = np.stack([y[duration], y[events[0]]], axis=1, dtype=float)
    values = check_targets(y, for_texts=AS_NUMBERS, for_gaps=AS_NUMBERS)
    if values.ndim != 2 or values.shape[1] != 2:
        raise ValueError(
            "y must be a structured array, or have the columns duration and event, got shape "
            f"{values.shape}"
        )
    negative = values < 0
    if negative[:, 0].any():
        value = values[negative[:, 0], 0][0]
        raise ValueError(
            f"y must hold durations of at least 0, got {value:g} in {place_of(negative, y)}"
        )
    unknown = ~np.isin(values, (0, 1))
    unknown[:, 0] = False
    if unknown.any():
        raise ValueError(
            "y must hold durations and then events, of which 1 or True is an event, and 0 or "
            f"False is censored, got {values[unknown][0]:g} in {place_of(unknown, y)}"
        )
    return values[:, 0], values[:, 1] == 1
