"""Registries of the classes, functions and kinds of values that a file may hold."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable)
Class = TypeVar("Class", bound=type)
#: Function from the parameters of any version to current parameters.
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

VERSION = "_nona_sklearn_version"  # in the state of a pickle, not of a file
#: Most characters of a date, a duration or a time zone, since reading takes quadratic time.
MAX_CHARACTERS = 100

CLASSES: dict[str, type] = {}
FUNCTIONS: dict[str, Callable] = {}
ESTIMATORS: list[type] = []  # classes that have files
#: Functions that upgrade parameters, by class.
UPGRADES: dict[type, Upgrade] = {}
#: Parameter and factory of a network's modules that are made from a parameter, by module name.
MODULE_FACTORIES: dict[str, tuple[str, Callable[[Any], Any]]] = {}
#: Registries of parameters that name an entry, which must exist when a file is read.
CHOICES: dict[str, Collection[str]] = {}
#: New names of classes, and of keys of a class's state: ``{"nona_sklearn.Class.old": "new"}``.
RENAMED: dict[str, str] = {
    "nona_sklearn.Feature": "nona_sklearn.ColumnSpec",
    "nona_sklearn.AdditiveTrend.own": "fitted_values",
}


@dataclass(frozen=True)
class Codec:
    """Convert values of a kind to plainer values, and back."""

    write: Callable[[Any], Any]
    kinds: Any  # the plainer value's type or types, or a list of its parts' types
    read: Callable[[Any], Any]
    max_characters: float = MAX_CHARACTERS
    #: Whether the codec also accepts a value of a type that is not the codec's name.
    accepts: Callable[[Any], bool] = lambda _: False

    def check(self, plain: Any) -> None:
        """Raise if `write` cannot have returned a plain value, before it is read."""
        parts, kinds = (plain, self.kinds) if type(self.kinds) is list else ([plain], [self.kinds])
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise ValueError(f"{type(plain).__name__} is not of {len(kinds)} parts")
        for part, kind in zip(parts, kinds, strict=True):
            if not isinstance(part, kind):
                raise ValueError(f"a part is a {type(part).__name__}")
            if isinstance(part, str) and len(part) > self.max_characters:
                raise ValueError(
                    f"a text has {len(part)} characters, more than {self.max_characters}"
                )


CODECS: dict[str, Codec] = {}


def name_of(thing: Any) -> str:
    """Return the name of a class or function with its library, so that the module may change."""
    return f"{thing.__module__.split('.')[0]}.{thing.__qualname__}"


def storable(thing: T) -> T:
    """Register a class whose state, or a function whose name, a file may hold, and return it.

    A state must hold the parameters of ``__init__`` without a default, unless the class defines a
    ``__setstate__`` that checks the state.
    """
    if isinstance(thing, type):
        CLASSES[name_of(thing)] = thing
    else:
        FUNCTIONS[name_of(thing)] = thing
    return thing


def storable_parameters(
    *, upgrade: Upgrade = dict, estimator: bool = False
) -> Callable[[Class], Class]:
    """Return a decorator that registers a class with parameters like a BaseEstimator.

    `upgrade` converts parameters of any version to current parameters; missing parameters become
    defaults afterwards. An `estimator` has files.
    """

    def register(kind: Class) -> Class:
        UPGRADES[storable(kind)] = upgrade
        if estimator:
            ESTIMATORS.append(kind)
        return kind

    return register


def storable_estimator(*, upgrade: Upgrade = dict) -> Callable[[Class], Class]:
    """Return a decorator that registers an estimator, which has files."""
    return storable_parameters(upgrade=upgrade, estimator=True)
