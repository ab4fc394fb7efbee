"""Links from estimators to their pages on the site."""

from __future__ import annotations

#: Where the versions of the site are, such as "https://example.org/en", once it is published: from
#: then on, estimators in notebooks and the README of a release link to it.
SITE = ""


def page_template(site: str) -> str:
    """The address of an estimator's page, a format of version and name; empty without a site."""
    return f"{site}/{{version}}/generated/api/nona_sklearn.{{name}}.html" if site else ""


class Documented:
    """The link to an estimator's page, for this version, in scikit-learn's HTML view."""

    _doc_link_module = "nona_sklearn"
    _doc_link_template = page_template(SITE)

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        from .._version import __version__  # the release script runs this file by itself

        return {"version": f"v{__version__}", "name": type(self).__name__}
