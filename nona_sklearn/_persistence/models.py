"""Models around an estimator of this package, as files of skops, and models inside of one."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from .._utils.extras import import_extra
from .._utils.files import put_in_place
from .._utils.storable import CLASSES, FUNCTIONS
from .compiled import check_objects
from .memory import MemoryBudget

#: Beside what skops trusts: scikit-learn's estimators, NumPy's and SciPy's arrays and functions.
OF_OTHERS = {"numpy.dtype"}
MADE_OF = "estimator must be made of parts of scikit-learn and of this package"


def is_model(thing: Any) -> bool:
    """Whether it is an estimator of scikit-learn, fitted or not."""
    return isinstance(thing, BaseEstimator) and type(thing).__module__.startswith("sklearn.")


def refuse_model_inside(estimator: Any, place: str, remedy: str) -> None:
    """Refuse an estimator whose trend is a model, for a place that holds numbers alone."""
    if hasattr(getattr(estimator, "trend_", None), "fit"):
        model = f"{estimator.trend!r:.100}"
        raise TypeError(f"trend must be no model for {place}, got {model}: {remedy}")


def holds_model(path: Path) -> bool:
    """Whether a file is one that :func:`write_model` wrote."""
    return zipfile.is_zipfile(path)


def write_model(model: BaseEstimator, path: Path) -> None:
    """Write a model that :func:`read_model` reads."""
    io = _skops()
    try:
        content = io.dumps(model)
        types = io.get_untrusted_types(data=content)
        if not _untrusted(types):
            _construct(io, content, types)
    except Exception as error:  # skops has no error of its own
        raise TypeError(f"{MADE_OF}, and skops cannot hold it: {error!r:.200}") from error
    if unknown := _untrusted(types):
        raise TypeError(
            f"{MADE_OF}, got {unknown[0]}: use skops.io.dump, or save the best_estimator_ of a "
            "search"
        )
    with put_in_place(path) as beside:
        beside.write_bytes(content)


def read_model(path: Path) -> Any:
    """Read a model; a ValueError, if the file is damaged or holds other types."""
    io = _skops()
    try:
        _check_sizes(path)
        content = path.read_bytes()
        types = io.get_untrusted_types(data=content)
        if not (unknown := _untrusted(types)):
            return _construct(io, content, types)
    except Exception as error:  # a forged file may cause any
        raise ValueError(
            f"{path} is damaged, or not a file that save wrote: {error!r:.200}"
        ) from error
    raise ValueError(
        f"{path} holds {unknown[0]}, which is no part of scikit-learn or of this package: read "
        "what it is, and use skops.io.load"
    )


def _construct(io: Any, content: bytes, types: list[str]) -> Any:
    model = io.loads(content, trusted=types)
    check_objects(model)
    return model


def _check_sizes(path: Path) -> None:
    """Refuse an archive with entries that skops does not write, and that are larger in memory."""
    memory = MemoryBudget(path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{entry.filename:.50} is compressed")
            memory.charge(1, entry.file_size)  # several entries may share their bytes
            with archive.open(entry) as opened:
                if opened.read(2) == b"PK":  # of NumPy's and SciPy's, which may be compressed
                    raise ValueError(f"{entry.filename:.50} is an archive")


def _untrusted(types: list[str]) -> list[str]:
    """The types, by their names, that are not of this package or known to be harmless."""
    parts: list[Any] = [*CLASSES.values(), *FUNCTIONS.values()]
    own = {f"{part.__module__}.{part.__qualname__}" for part in parts}
    return [name for name in types if name not in own | OF_OTHERS]


def _skops() -> Any:
    return import_extra("a file of a model around an estimator", "skops.io", extra="skops")
