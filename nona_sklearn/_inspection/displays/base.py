"""Common parts of the displays: axes and styles, colours, legends, and checks of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..._utils.tables import target_names_of
from ..._utils.validation import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGEND_ROWS = 20
COLORS = "petroff10"  # colour-blind readers can distinguish these colours of matplotlib


class Display:
    """Base class of displays, with axes and styles."""

    ax_: Axes
    figure_: Figure

    def plot(self, ax: Any = None) -> Self:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The Axes to draw on. By default, a new figure is made.
        scatter_kwargs, line_kwargs, bar_kwargs, interval_kwargs : dict, optional
            Arguments of matplotlib for dots, curves, bars and vertical lines. A display takes
            the arguments of the parts that it draws.

        Returns
        -------
        self : Display
            The display, with the Axes and the Figure of the picture as `ax_` and `figure_`.

        Raises
        ------
        TypeError
            If the display has no such part, or a style is not a dict.

        Examples
        --------
        One of two intervals contains its true target:

        >>> import numpy as np
        >>> from nona_sklearn import IntervalDisplay
        >>> intervals = np.array([[0.0, 2.0], [1.0, 4.0]])
        >>> display = IntervalDisplay(intervals, np.array([1.0, 2.0]), np.array([1.5, 9.0]))
        >>> display.plot(line_kwargs={"color": "tab:red"}).ax_.get_title()
        '90% intervals: 50% of 2 targets inside'
        """
        raise NotImplementedError

    def _start(self, ax, **styles):
        """Set the axes, and return them and the styles as dicts with matplotlib's full names."""
        import_extra(type(self).__name__, "matplotlib", extra="demo")
        from matplotlib.cbook import normalize_kwargs
        from matplotlib.collections import LineCollection, PathCollection
        from matplotlib.lines import Line2D
        from matplotlib.patches import Rectangle

        for part, style in styles.items():
            if not isinstance(style, dict | None):
                raise TypeError(f"{part} must be a dict, got {style!r}")
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        artists = {
            "scatter_kwargs": PathCollection,
            "line_kwargs": Line2D,
            "bar_kwargs": Rectangle,
            "interval_kwargs": LineCollection,
        }
        return ax, *(normalize_kwargs(style, artists[part]) for part, style in styles.items())


def class_colors(n_classes):
    """Return the colours of classes, (n_classes, 4), which all displays have in common."""
    from matplotlib import color_sequences, colormaps
    from matplotlib.colors import to_rgba_array

    for name in (COLORS, "tab20"):
        if n_classes <= len(color_sequences[name]):
            return to_rgba_array(color_sequences[name][:n_classes])
    return colormaps["turbo"](np.linspace(0, 1, n_classes))


def legend_beside(ax, n_labels, title=None):
    """Draw a legend on the right of the axes, in as many columns as the labels need."""
    n_columns = -(-n_labels // LEGEND_ROWS)
    beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    ax.legend(title=title, ncols=n_columns, fontsize="small", **beside)


def target_name(model, y=None):
    """Return the name of the only target in `y` or, without a name, in the targets of fit."""
    names = target_names_of(y) or model.target_names_
    return names[0] if names else "target"


def check_one_output(shape):
    if len(shape) != 1:
        raise ValueError(f"y must be one output, got targets {tuple(shape)}")


def check_one_of(X, y_true, row):
    """Raise if both or neither of `X` and `row` are given, or `y_true` is given with `row`."""
    if (X is None) == (row is None):
        both = "neither" if X is None else "both"
        raise ValueError(f"exactly one of X and row must be given, got {both}")
    if row is not None and y_true is not None:
        raise ValueError(
            f"y_true must be None with row, whose target is known, got {y_true!r:.100}"
        )
