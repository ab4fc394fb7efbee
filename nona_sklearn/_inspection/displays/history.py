"""The losses in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import is_classifier

from ..._estimators.parameters import ASSoftmax
from ..unwrap import unwrap
from .base import Display, count_networks

SQUARED_ERROR = "squared error of standardised targets"
WIDE = 50  # the largest loss over the smallest: ticks between powers of ten have no room


@dataclass(eq=False, repr=False)
class HistoryDisplay(Display):
    """The losses of each epoch of each network, and the epoch with the weights that were kept.

    Parameters
    ----------
    history : list of dict
        One for each epoch: ``epoch``, ``train_loss``, and where there are several networks
        or validation rows, ``estimator`` and ``valid_loss``; ``kept`` of the one that was
        kept.
    loss : str, default="squared error of standardised targets"
        Name of the loss.

    Examples
    --------
    >>> from nona_sklearn import HistoryDisplay
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> HistoryDisplay.from_estimator(knn.fit(X, y)).ax_.get_title()
    'Training: 1 network'
    """

    history: list[dict]
    loss: str = SQUARED_ERROR

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, line_kwargs: dict[str, Any] | None = None
    ) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator or model around one, as :func:`unwrap` takes it
        ax, line_kwargs : optional, as for :meth:`plot`

        Returns
        -------
        display : HistoryDisplay

        Examples
        --------
        >>> from nona_sklearn import HistoryDisplay
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> display = HistoryDisplay.from_estimator(knn.fit(X, y))
        >>> display.history[-1]["stopped"]
        'no change'
        """
        fitted = unwrap(estimator).estimator
        return cls(fitted.history_, _loss_of(fitted)).plot(ax, line_kwargs=line_kwargs)

    def plot(self, ax: Any = None, *, line_kwargs: dict[str, Any] | None = None) -> Self:
        ax, lines = self._start(ax, line_kwargs=line_kwargs)
        networks: dict[int, list[dict]] = {}
        for epoch in self.history:
            networks.setdefault(epoch.get("estimator", 0), []).append(epoch)
        for i, epochs in enumerate(networks.values()):
            _draw_network(ax, epochs, {"color": f"C{i}", **lines})
        _scale_axes(ax)
        title = f"Training: {count_networks(len(networks))}"
        ax.set(title=title, xlabel="epoch", ylabel=self.loss)
        handles, labels = ax.get_legend_handles_labels()
        n_styles = len(set(labels))
        legend = ax.legend(handles[:n_styles], labels[:n_styles])
        if len(networks) > 1:
            for handle in legend.legend_handles:
                handle.set_color("black")
        return self


def _loss_of(fitted):
    """Name of the loss of an estimator; validation rows always have the log loss."""
    if not is_classifier(fitted):
        return SQUARED_ERROR
    loss = ASSoftmax.of(fitted.loss)
    return "log loss" if loss is None else f"log loss (in training {type(loss).__name__})"


def _draw_network(ax, epochs, styles):
    """Draw the curves of one network, and a dot at the epoch that was kept."""
    number = [epoch["epoch"] for epoch in epochs]
    losses = [epoch["train_loss"] for epoch in epochs]
    ax.plot(number, losses, **{"linestyle": "--", "linewidth": 1, **styles}, label="training")
    if "valid_loss" in epochs[0]:
        losses = [epoch["valid_loss"] for epoch in epochs]
        ax.plot(number, losses, **styles, label="validation")
    for epoch, at, loss in zip(epochs, number, losses, strict=True):
        if "kept" in epoch:
            ax.plot(at, loss, "o", color=styles["color"], label="kept")


def _scale_axes(ax):
    """Take logarithms of the losses, and place ticks at round losses and epochs."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1, 2, 3, 4, 5, 7) if high < WIDE * low else (1,)
    ax.yaxis.set_major_locator(LogLocator(subs=subs))
    ax.yaxis.set_major_formatter("{x:g}")  # 0.5 rather than 5 × 10⁻¹
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
