"""Numbers of a file that compiled code uses as positions in memory, without a check of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import OneHotEncoder

from .._utils.validation import is_whole

#: Of the states of NumPy's bit generators: positions in a buffer, and their largest values.
POSITIONS = {"pos": 624, "buffer_pos": 4}


def check_positions(state: Any) -> None:
    """Refuse a state of a bit generator whose next number is outside its buffer."""
    for entries in (state, state["state"]):
        for name in POSITIONS.keys() & entries.keys():
            if not is_whole(entries[name], 0, POSITIONS[name]):
                raise ValueError(
                    f"a random state has {POSITIONS[name]} words, and no position "
                    f"{entries[name]!r:.50}"
                )


def check_object(thing: Any) -> None:
    """Refuse an object whose numbers lead compiled code out of its arrays."""
    if isinstance(thing, np.random.RandomState):
        check_positions(thing.get_state(legacy=False))
    elif isinstance(thing, np.random.Generator):
        check_positions(thing.bit_generator.state)
    elif isinstance(thing, CountVectorizer) and hasattr(thing, "vocabulary_"):
        places = thing.vocabulary_.values()
        if not all(is_whole(place, 0, len(places) - 1) for place in places):
            raise ValueError(f"a vocabulary of {len(places)} words has a place beyond them")
    elif isinstance(thing, OneHotEncoder) and hasattr(thing, "categories_"):
        _check_one_hot(thing)


def check_objects(root: Any) -> None:
    """Refuse an object, if one that it is made of leads compiled code out of its arrays."""
    seen, left = {id(root): root}, [root]
    while left:
        thing = left.pop()
        check_object(thing)
        for part in _parts(thing):
            if id(part) not in seen:
                seen[id(part)] = part
                left.append(part)


def _parts(thing: Any) -> Iterable:
    if isinstance(thing, type | FunctionType | ModuleType):
        return ()
    if isinstance(thing, np.ndarray) and thing.dtype == object:
        return thing.ravel().tolist()
    if isinstance(thing, Mapping):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    own = getattr(thing, "__dict__", {}).values()
    return [*own, thing.args, thing.keywords] if isinstance(thing, partial) else own


def _check_one_hot(encoder: OneHotEncoder) -> None:
    """Encode each category once, and compare its column with the number of columns."""
    n_rows = max(map(len, encoder.categories_))
    table = [np.resize(np.asarray(own, object), n_rows) for own in encoder.categories_]
    plain = OneHotEncoder.__new__(OneHotEncoder)
    vars(plain).update(vars(encoder) | {"sparse_output": True, "_sklearn_output_config": {}})
    vars(plain).pop("feature_names_in_", None)
    plain.transform(np.array(table, object).T).check_format(full_check=True)
