"""Docstrings of classes that are completed by those of other classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TypeVar

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
