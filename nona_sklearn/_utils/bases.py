"""scikit-learn's base classes, which have no types.

A type checker lets a class whose base is unknown take any parameter. These take those of a class.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class _Untyped:
        """Any attribute is of an unknown type."""

        def __getattr__(self, name: str) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> Any: ...
        def __setstate__(self, state: Any) -> None: ...
        def _validate_params(self) -> None: ...
        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class BaseEstimator(_Untyped): ...

    class TransformerMixin(_Untyped): ...

    class RegressorMixin(_Untyped): ...

    class ClassifierMixin(_Untyped): ...

else:
    from sklearn.base import (  # noqa: F401
        BaseEstimator,
        ClassifierMixin,
        RegressorMixin,
        TransformerMixin,
    )
