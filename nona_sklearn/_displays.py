"""Pictures. The only file that imports matplotlib, and only inside methods."""

import numpy as np


class NeighborsDisplay:
    """The neighbours behind one prediction: the weight of each against its target.

    It is recommended to use :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (n_neighbors,)
        Share of each neighbour in the prediction.
    targets : ndarray of shape (n_neighbors,)
        Target of each neighbour.
    names : ndarray of shape (n_neighbors,)
        Name of each neighbour.
    prediction : float
        The prediction, over all neighbours.
    y_true : float, optional
        The true target.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from nona_sklearn import NeighborsDisplay, NONARegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = NONARegressor(random_state=0).fit(X[:400], y[:400])
    >>> display = NeighborsDisplay.from_estimator(reg, X[400:401], y[400])
    >>> len(display.weights)
    10
    """

    def __init__(self, weights, targets, names, prediction, y_true=None):
        self.weights = weights
        self.targets = targets
        self.names = names
        self.prediction = prediction
        self.y_true = y_true

    @classmethod
    def from_estimator(cls, estimator, X, y_true=None, *, n_neighbors=10, row_names=None, ax=None):
        """Ask a fitted estimator for one query's neighbours, and draw them.

        Parameters
        ----------
        estimator : NONARegressor or SoftStepKNeighborsRegressor
            Fitted to one output.
        X : array-like of shape (1, n_features)
            The query.
        y_true : float, optional
            Its true target.
        n_neighbors : int, default=10
            Number of neighbours to draw; all, if the bank holds fewer.
        row_names : array-like of shape (n_samples,), optional
            Names of the rows given to fit; their numbers by default.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        display : NeighborsDisplay
            With the data of the picture as attributes.

        Raises
        ------
        ValueError
            If `X` is not one row, or the estimator was fitted to several outputs.
        """
        prediction = estimator.predict(X)
        if prediction.shape != (1,):
            raise ValueError(
                f"X must be one query and y one output, got predictions {prediction.shape}"
            )
        n_neighbors = min(n_neighbors, len(estimator.bank_))
        weights, indices = estimator.kneighbors(X, n_neighbors)
        targets = estimator.bank_.targets.cpu().numpy()[indices[0]]
        names = indices[0] if row_names is None else np.asarray(row_names)[indices[0]]
        return cls(weights[0], targets, names, prediction[0], y_true).plot(ax)

    def plot(self, ax=None):
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self : NeighborsDisplay
            With `ax_` and `figure_` set.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        ax.vlines(self.targets, 0, self.weights, color="tab:blue", alpha=0.5)
        ax.plot(self.targets, self.weights, "o", color="tab:blue", label="neighbour")
        ax.axvline(self.prediction, color="tab:orange", label="prediction")
        if self.y_true is not None:
            ax.axvline(self.y_true, color="tab:green", linestyle="--", label="true target")
        for target, weight, name in zip(self.targets, self.weights, self.names, strict=True):
            ax.annotate(
                str(name),
                (target, weight),
                xytext=(0, 5),
                textcoords="offset points",
                rotation=45,
                fontsize="x-small",
            )
        share = self.weights.sum()
        ax.set(
            title=f"{len(self.weights)} heaviest neighbours ({share:.0%} of the weight)",
            xlabel="target of the neighbour",
            ylabel="weight",
        )
        ax.margins(x=0.1)
        ax.set_ylim(0, 1.3 * self.weights.max())
        ax.legend(loc="upper center", ncols=3)
        self.ax_, self.figure_ = ax, ax.figure
        return self
