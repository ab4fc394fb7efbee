"""Base classes: scikit-learn's with types for type checkers, and links to pages of the site.

scikit-learn's classes have no types, and a type checker accepts any parameter of a class whose
base is unknown. The substitutes let mypy check parameters. Pyright reads scikit-learn's classes,
so that estimators have their type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

#: Address of the published site's versions, such as "https://example.org/en", to which estimators
#: in notebooks and the README of a release link. It is empty before publication.
SITE = ""


def page_template(site: str) -> str:
    """Return a format string for the address of an estimator's page, empty without a site."""
    return f"{site}/{{version}}/generated/api/nona_sklearn.{{name}}.html" if site else ""


class Documented:
    """Link scikit-learn's HTML view of an estimator to its page for this version."""

    _doc_link_module = "nona_sklearn"
    _doc_link_template = page_template(SITE)

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        from .._version import __version__  # the release script runs this file alone

        return {"version": f"v{__version__}", "name": type(self).__name__}


MYPY = False  # mypy treats the name as True

if TYPE_CHECKING:
    import sklearn.base

    class _Untyped:
        """Declare any attribute with an unknown type."""

        def __getattr__(self, name: str) -> Any: ...
        def __sklearn_tags__(self) -> Any: ...
        def __getstate__(self) -> Any: ...
        def __setstate__(self, state: Any) -> None: ...
        def _validate_params(self) -> None: ...
        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def set_params(self, **params: Any) -> Self: ...
        def set_fit_request(self, **requests: Any) -> Self: ...
        def set_predict_request(self, **requests: Any) -> Self: ...
        def set_score_request(self, **requests: Any) -> Self: ...

    if MYPY:

        class BaseEstimator(_Untyped): ...

        class TransformerMixin(_Untyped): ...

        class RegressorMixin(_Untyped): ...

        class ClassifierMixin(_Untyped): ...

    else:

        class BaseEstimator(_Untyped, sklearn.base.BaseEstimator): ...

        class TransformerMixin(_Untyped, sklearn.base.TransformerMixin): ...

        class RegressorMixin(_Untyped, sklearn.base.RegressorMixin): ...

        class ClassifierMixin(_Untyped, sklearn.base.ClassifierMixin): ...

else:
    from sklearn.base import (  # noqa: F401
        BaseEstimator,
        ClassifierMixin,
        RegressorMixin,
        TransformerMixin,
    )
