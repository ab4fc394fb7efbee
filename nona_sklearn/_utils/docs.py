"""Links from estimators to their pages on the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

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


SECTION = r"{}\n-+\n(.*?)(?=\n\n[A-Z][\w ]*\n---|\Z)"

Class = TypeVar("Class", bound=type)


def with_parameters_of(*others: type) -> Callable[[Class], Class]:
    """Return a decorator that adds parameters and attributes of classes to a docstring.

    Parameters have the order of the signature, attributes the order of the classes. Later classes
    override earlier classes, and the decorated class overrides all. Classifiers have no
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
    """Return the descriptions in a docstring's section, by name."""
    found = re.search(SECTION.format(section), text, re.DOTALL)
    if found is None:
        return {}
    parts = re.split(r"\n+(?=\w)", found[1].strip())
    return {part.split(" : ")[0]: part for part in parts}
