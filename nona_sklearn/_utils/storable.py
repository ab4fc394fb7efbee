"""What a file may hold: classes, functions and kinds of values register themselves here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable)
Class = TypeVar("Class", bound=type)
#: From the parameters of any version to today's.
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

VERSION = "_nona_sklearn_version"  # in the state of a pickle, not of a file
#: Characters of a date, a duration or a time zone: reading one takes the square of their number.
MAX_CHARACTERS = 100

CLASSES: dict[str, type] = {}
FUNCTIONS: dict[str, Callable] = {}
ESTIMATORS: list[type] = []  # of which a file may be
#: Classes with parameters.
UPGRADES: dict[type, Upgrade] = {}
#: Modules of a network that are made from a parameter: its name and the factory, by their names.
MODULE_FACTORIES: dict[str, tuple[str, Callable[[Any], Any]]] = {}
#: Parameters that name an entry of a registry, which must have it when a file is read.
CHOICES: dict[str, Collection[str]] = {}
#: Today's names of classes, and of keys of a class's state: ``{"nona_sklearn.Class.old": "new"}``.
RENAMED: dict[str, str] = {
    "nona_sklearn.Feature": "nona_sklearn.ColumnSpec",
    "nona_sklearn.AdditiveTrend.own": "fitted_values",
}


@dataclass(frozen=True)
class Codec:
    """How values of a kind are written as plainer values, and read again."""

    write: Callable[[Any], Any]
    kinds: Any  # the plainer value's type, or types, or a list with those of each of its parts
    read: Callable[[Any], Any]
    max_characters: float = MAX_CHARACTERS
    #: Other values than those of the type that it is named after.
    accepts: Callable[[Any], bool] = lambda _: False

    def check(self, plain: Any) -> None:
        """Refuse what `write` does not return, before it is read."""
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
    """Name a class or function by its library, so that it may move within it."""
    return f"{thing.__module__.split('.')[0]}.{thing.__qualname__}"


def storable(thing: T) -> T:
    """Register a class, of which a file holds the state, or a function, which a file may name.

    A state has to hold the parameters of ``__init__`` without a default, unless the class has a
    ``__setstate__`` of its own, which checks it.
    """
    if isinstance(thing, type):
        CLASSES[name_of(thing)] = thing
    else:
        FUNCTIONS[name_of(thing)] = thing
    return thing


def storable_parameters(
    *, upgrade: Upgrade = dict, estimator: bool = False
) -> Callable[[Class], Class]:
    """Register a class with parameters, such as an object that is a parameter of an estimator.

    It has parameters as scikit-learn's BaseEstimator.

    Parameters
    ----------
    upgrade : callable, default=dict
        From the parameters in a file of any version, with those that the user passes to ``load``,
        to this version's. Those that are missing are set to their defaults afterwards.
    estimator : bool, default=False
        Whether it has files of its own.
    """

    def register(kind: Class) -> Class:
        UPGRADES[storable(kind)] = upgrade
        if estimator:
            ESTIMATORS.append(kind)
        return kind

    return register


def storable_estimator(*, upgrade: Upgrade = dict) -> Callable[[Class], Class]:
    """Register an estimator, which has files of its own."""
    return storable_parameters(upgrade=upgrade, estimator=True)
