"""Texts of a column as numbers: by a vectoriser of scikit-learn, or by a model of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from .._utils.storable import storable
from .columns import SHOWN

N_COMPONENTS = 30  # of sparse features, as in skrub's StringEncoder
#: Of the largest singular value: less is rounding, which scaling would enlarge.
LEAST_COMPONENT = 1e-6


def default_vectorizer() -> TfidfVectorizer:
    """Make the vectoriser of columns that are named without one: n-grams of characters."""
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4))


def check_vectorizer(vectorizer: Any, label: str) -> None:
    """Refuse what makes no numbers of texts, in `text_features`, of a column."""
    is_transformer = hasattr(vectorizer, "fit") and hasattr(vectorizer, "transform")
    if isinstance(vectorizer, type) or not (is_transformer or callable(vectorizer)):
        raise TypeError(
            "text_features must have a transformer, such as TfidfVectorizer(), or a function of "
            f"a list of str for {label}, got {vectorizer!r:.80}"
        )


@storable
@dataclass(frozen=True, eq=False)
class TextEncoder:
    """What makes numbers of a column's texts.

    Parameters
    ----------
    vectorizer : transformer, callable or None
        Fitted; or a function from a list of str to an array (n, d). None, if all texts were
        missing in fit: they become 0.
    svd : TruncatedSVD, optional
        Reduces sparse features.
    n_outputs : int, optional
        Number of columns.
    """

    vectorizer: Any
    svd: TruncatedSVD | None = None
    n_outputs: int | None = None

    @classmethod
    def fit(cls, vectorizer: Any, texts: Sequence[str]) -> TextEncoder:
        """Fit a copy of a transformer to texts, and what reduces its sparse features."""
        if not any(map(str.strip, texts)):
            return cls(None, None, 1)
        svd = None
        if hasattr(vectorizer, "transform"):
            vectorizer = clone(vectorizer).fit(texts)
            features = vectorizer.transform(texts)
            svd = _fit_svd(features) if issparse(features) else None
        one = cls(vectorizer, svd).encode(texts[:1])  # a model may take long for all
        return cls(vectorizer, svd, one.shape[1])

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Make numbers of texts, (n, n_outputs).

        Raises
        ------
        ValueError
            If the vectoriser does not return finite numbers, a row for each text, as in fit.
        """
        given = self.vectorizer
        if given is None:
            return np.zeros((len(texts), 1))
        found = given.transform(texts) if hasattr(given, "transform") else given(texts)
        if self.svd is not None:
            found = self.svd.transform(found)
        numbers = np.asarray(found.toarray() if issparse(found) else found, dtype=np.float64)
        n_outputs = self.n_outputs
        if n_outputs is None and numbers.ndim == 2:
            n_outputs = numbers.shape[1]
        if numbers.shape != (len(texts), n_outputs):
            wanted = f"({len(texts)}, {'d' if n_outputs is None else n_outputs})"
            raise ValueError(
                f"{given!r:.80} must return finite numbers of shape {wanted}, got an array of "
                f"shape {numbers.shape}"
            )
        if not np.isfinite(numbers).all():
            row, column = np.argwhere(~np.isfinite(numbers))[0]
            raise ValueError(
                f"{given!r:.80} must return finite numbers, got {numbers[row, column]} for "
                f"{texts[row]!r:.{SHOWN}}"
            )
        return numbers


def _fit_svd(features: Any) -> TruncatedSVD | None:
    """The components of sparse features (n, d) that are no rounding; None, if features are few."""
    n_rows, n_features = features.shape
    if n_features <= N_COMPONENTS:
        return None
    svd = TruncatedSVD(min(N_COMPONENTS, n_rows), random_state=0)
    with np.errstate(all="ignore"):  # shares of the variance, which is 0 of equal texts
        svd.fit(features)
    sizes = svd.singular_values_
    svd.components_ = svd.components_[sizes >= LEAST_COMPONENT * sizes[0]]
    return svd
