"""A map of the learned space to look around in: the rows, and the report of each prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import column_or_1d

from .._data.names import warn_of_other_order
from .._utils.arrays import object_array
from .._utils.extras import import_extra
from .._utils.validation import check_fraction, check_integer, check_lengths, is_missing
from .appearance import Appearance
from .explored import look_around
from .explorer_page import explorer_page, title_of
from .page import as_html, element, write_page
from .report import footer
from .unwrap import Unwrapped, unwrap_one_output

HEIGHT = 760  # pixels of the frame in a notebook


class Explorer:
    """A page to look around in: made by :func:`explore`.

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
        """The page in a notebook, in a frame of its own."""
        look = f"width: 100%; height: {HEIGHT}px; border: 0"
        return as_html(element("iframe", srcdoc=self._page, style=look, title=self.title))

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the page as one file of HTML, which needs no network.

        Parameters
        ----------
        path : str or path-like
            The file, such as "explorer.html".
        overwrite : bool, default=False
            Whether a file that exists is replaced.

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
    """Make an interactive map of the learned space, with the rows behind each prediction.

    The page shows the stored rows, each predicted without itself, and queries. A click on a row
    draws lines to the rows behind its prediction. The picture and the table of its report, as of
    :class:`NeighborsReport`, are next to the map. A slider goes through the predictions from the
    largest error to the smallest. Colours are targets, predictions or errors. Charts show what
    columns add to predictions. Two lists contain rows whose targets are far from their
    predictions, and rows that are equal in the learned space.

    Parameters
    ----------
    model : estimator
        Fitted, of one output, as :func:`unwrap` takes it.
    X : {DataFrame, array-like} of shape (n_queries, n_features), optional
        Queries. None: the page shows stored rows only.
    y : array-like of shape (n_queries,), optional
        Their targets, if they are known, in the units of the targets of fit.
    features : DataFrame, array or list, optional
        Features of the stored rows to show, those given to fit followed by those of
        `add_neighbors`: a table, images (n, height, width), optionally with channels, or texts.
        None: names and targets only, since the bank does not store features.
    query_features : DataFrame, array or list, optional
        Features of the queries to show. None: `X`.
    n_neighbors : int, default=6
        Largest number of rows behind a prediction to show.
    coverage : float, default=0.9
        Probability of the prediction intervals of a regressor.
    max_rows : int, default=50_000
        Number of rows to draw. Of more stored rows, these are the rows behind the predictions of
        queries, and others at random; rows behind their predictions are drawn, too.
    reducer : transformer, optional
        Its `fit_transform` reduces embeddings to two columns or more, of which two are drawn:
        ``umap.UMAP()`` for example. Principal components by default.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of rows.

    Returns
    -------
    Explorer
        The page, which a notebook shows, with ``save(path)``.

    Raises
    ------
    ImportError
        If Bokeh is not installed.
    ValueError
        If a parameter is invalid, `y` or `query_features` is given without `X`, `features` and
        those of the queries are not of one kind, or the model has several outputs.

    See Also
    --------
    NeighborsReport : The report of one prediction.
    EmbeddingDisplay : The same map as a picture.
    EffectDisplay : What one column adds to predictions.

    Notes
    -----
    Needs the extra ``explore``. The size of the page is about 1.5 MB for the drawing program, and
    0.2 kB for each row, with 12 bytes for each of its numbers. A page of 10,000 rows takes
    about 40 seconds; the time grows with the square of their number.

    The charts need a regressor with ``similarity_="features"``, fitted to the columns of
    `features`: without steps before it, or transformed targets. Each has the values of
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
    model = unwrap_one_output("explore", model)
    bank = model.estimator.bank_
    if len(bank) < 2:
        raise ValueError("the bank must have at least 2 rows to explore, it has 1")
    query = None if X is None else model.embed(X)
    n_queries = 0 if query is None else len(query)
    of_queries = X if query_features is None else query_features
    found = look_around(
        model,
        query,
        _truth(model, y, n_queries),
        Appearance.of(bank, features, of_queries, n_queries),
        n_neighbors=min(n_neighbors, len(bank)),
        coverage=coverage,
        max_rows=max_rows,
        reducer=reducer,
        random_state=random_state,
    )
    page = explorer_page(found, coverage, footer(model))
    return Explorer(title_of(found), page)


def _truth(model: Unwrapped, y: Any, n_queries: int) -> np.ndarray:
    """The targets of queries, as numbers or labels; gaps where they are not known."""
    of_classes = is_classifier(model.estimator)
    if y is None:
        return np.full(n_queries, None if of_classes else np.nan)
    values = column_or_1d(y, dtype=object if of_classes else np.float64)
    check_lengths(n_queries, len(values))
    if of_classes:
        return object_array([None if is_missing(value) else value for value in values])
    if np.isinf(values).any():
        raise ValueError(f"y must be finite, or NaN where it is not known, got {values.max()}")
    return values
