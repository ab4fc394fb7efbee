"""Links from estimators to their pages on the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

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


SECTION = r"{}\n-+\n(.*?)(?=\n\n[A-Z][\w ]*\n---|\Z)"

Class = TypeVar("Class", bound=type)


def with_parameters_of(*others: type) -> Callable[[Class], Class]:
    """Complete a class's docstring by the parameters and attributes that others describe.

    Parameters come in the order of the signature, attributes in that of the others. Later classes
    override earlier ones, and the class's own descriptions all of them. A classifier has no
    ``calibration_``.
    """

    def complete(cls: Class) -> Class:
        if cls.__doc__ is None:  # python -OO
            return cls
        text = inspect.cleandoc(cls.__doc__)
        for section in ("Parameters", "Attributes"):
            described: dict[str, str] = {}
            for source in (*others, cls):
                described |= _entries(inspect.cleandoc(source.__doc__ or ""), section)
            if "classes_" in described:
                described.pop("calibration_", None)
            names = inspect.signature(cls).parameters if section == "Parameters" else described
            head, _, tail = re.split(SECTION.format(section), text, maxsplit=1, flags=re.DOTALL)
            body = "\n\n".join(described[name] for name in names)
            text = f"{head}{section}\n{'-' * len(section)}\n{body}{tail}"
        cls.__doc__ = text
        return cls

    return complete


def _entries(text: str, section: str) -> dict[str, str]:
    """Descriptions in a docstring's section, by name."""
    found = re.search(SECTION.format(section), text, re.DOTALL)
    if found is None:
        return {}
    parts = re.split(r"\n+(?=\w)", found[1].strip())
    return {part.split(" : ")[0]: part for part in parts}
