"""Imports of optional libraries, the extras of ``setup.cfg``."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def lacks(feature: str, libraries: str, extra: str) -> str:
    """Return the error message of a feature without its libraries, with the remedy."""
    return (
        f"{feature} needs {libraries}: install the extra '{extra}', by "
        f'pip install ".[{extra}]" in a copy of the repository of nona_sklearn'
    )


def import_extra(feature: str, *modules: str, extra: str) -> Any:
    """Return the first of a feature's modules after importing all; an error names the extra."""
    try:
        first, *_ = [import_module(module) for module in modules]
    except ImportError as error:
        libraries = " and ".join(module.partition(".")[0] for module in modules)
        raise ImportError(lacks(feature, libraries, extra)) from error
    return first
