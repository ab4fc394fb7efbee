"""Docstrings that say of a parameter what another class says of it; links to the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

SITE = "https://nona-sklearn.readthedocs.io/en"
SECTION = r"{}\n-+\n(.*?)(?=\n\n[A-Z][\w ]*\n---|\Z)"


def with_parameters_of(other: type) -> Callable[[type], type]:
    """Complete a class's docstring by another's: what it says of parameters and attributes.

    A parameter's entry is taken from `other` if the class accepts the parameter and does not
    describe it; parameters come in the order of the signature. So it is with attributes, but for
    ``calibration_``, and for the order.
    """

    def complete(cls: type) -> type:
        if cls.__doc__ is None or other.__doc__ is None:  # python -OO
            return cls
        text, theirs = inspect.cleandoc(cls.__doc__), inspect.cleandoc(other.__doc__)
        accepted = list(inspect.signature(cls).parameters)
        for section in ("Parameters", "Attributes"):
            described = entries(theirs, section) | entries(text, section)
            described.pop("calibration_", None)
            names = accepted if section == "Parameters" else list(described)
            head, _, tail = re.split(SECTION.format(section), text, maxsplit=1, flags=re.DOTALL)
            body = "\n\n".join(described[name] for name in names)
            text = f"{head}{section}\n{'-' * len(section)}\n{body}{tail}"
        cls.__doc__ = text
        return cls

    return complete


def entries(text: str, section: str) -> dict[str, str]:
    """What a docstring's section says of each name."""
    found = re.search(SECTION.format(section), text, re.DOTALL)
    if found is None:
        return {}
    parts = re.split(r"\n+(?=\w)", found[1].strip())
    return {part.split(" : ")[0]: part for part in parts}


class Documented:
    """What scikit-learn's HTML view asks an estimator: where its page is, of this version."""

    _doc_link_module = "nona_sklearn"
    _doc_link_template = f"{SITE}/{{version}}/generated/api/nona_sklearn.{{name}}.html"

    def _doc_link_url_param_generator(self):
        from .._version import __version__  # the release script runs this file by itself

        return {"version": f"v{__version__}", "name": type(self).__name__}
