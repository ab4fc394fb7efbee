"""Links from estimators to their pages on the site."""

from __future__ import annotations

SITE = "https://nona-sklearn.readthedocs.io/en"


class Documented:
    """The link to an estimator's page, for this version, in scikit-learn's HTML view."""

    _doc_link_module = "nona_sklearn"
    _doc_link_template = f"{SITE}/{{version}}/generated/api/nona_sklearn.{{name}}.html"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        from .._version import __version__  # the release script runs this file by itself

        return {"version": f"v{__version__}", "name": type(self).__name__}
