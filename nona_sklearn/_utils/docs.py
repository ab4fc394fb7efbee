"""Links from estimators to their pages on the site."""

from __future__ import annotations

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
