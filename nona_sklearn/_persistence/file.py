"""A fitted estimator as one file that holds data and no code: save and load."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from .._utils.files import as_path, destination, put_in_place
from .._utils.validation import check_flag
from .._version import __version__
from .codec import ESTIMATORS, Decoder, Encoder, MismatchError, UnknownError

CONTENT = "estimator"  # the tensor that holds the JSON, as UTF-8
FORMAT = 1  # of the files that this version writes, and the newest that it reads
LIBRARIES = "numpy", "safetensors", "scikit-learn", "scipy", "skorch", "torch"


def save(estimator, path, *, overwrite=False):
    """Write an estimator into one file that holds data and no code.

    The file is of the safetensors format: networks, bank and all other numbers as tensors, and
    one that is JSON, with parameters, columns, classes, names and calibration. A checksum covers
    all of it.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, \
            SoftStepKNeighborsClassifier, ApproximateNeighborsRegressor or TableEncoder
        Fitted or not. Of a pipeline or a search, save the estimator in it, or use skops.
    path : str or path-like
        Where to write. The file is complete or not there: it is written beside, and moved.
    overwrite : bool, default=False
        Whether to take the place of a file that is there.

    Raises
    ------
    TypeError
        If it is no estimator of this package, or holds an object that a file cannot.
    FileExistsError
        If there is something at `path`, and `overwrite` is False.
    OSError
        If the file cannot be written. What was at `path` stays.

    See Also
    --------
    load : Read it again.

    Notes
    -----
    What a file cannot hold is to be handed to :func:`load` again: a `feature_extractor` (its
    fitted weights are in the file), `collate_fn`, `callbacks`, an `accelerator`, and a
    `weighting` of one's own.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_diabetes
    >>> import nona_sklearn
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = nona_sklearn.NONARegressor(n_estimators=1, random_state=0).fit(X[:400], y[:400])
    >>> path = Path(tempfile.mkdtemp(), "diabetes.safetensors")
    >>> nona_sklearn.save(reg, path)
    >>> again = nona_sklearn.load(path)
    >>> bool((again.predict(X[400:]) == reg.predict(X[400:])).all())
    True
    """
    path = as_path("path", path)
    check_flag("overwrite", overwrite)
    if type(estimator) not in ESTIMATORS:
        kinds = sorted(ESTIMATORS, key=lambda kind: not hasattr(kind, "predict"))
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"estimator must be one of {names}, got {estimator!r:.100}")
    write(estimator, destination(path, overwrite))


def write(thing: Any, path: Path) -> str:
    """Write an estimator, or a part of one, into a file, see :func:`save`: its checksum."""
    with put_in_place(path) as beside:
        return _write(thing, beside)


def _write(thing: Any, path: Path) -> str:
    encoder = Encoder()
    try:
        written = encoder.encode(thing, type(thing).__name__)
    except UnknownError as error:
        raise TypeError(f"a file cannot hold this estimator: {error}") from None
    content = bytearray(_to_json(written).encode("utf-8", "surrogatepass"))
    tensors = encoder.tensors | {CONTENT: torch.frombuffer(content, dtype=torch.uint8)}
    metadata = {
        "format": str(FORMAT),
        "handed": _to_json(encoder.handed),
        "versions": _to_json(_versions()),
    }
    metadata["sha256"] = _checksum(metadata, tensors)
    try:
        safetensors.torch.save_file(tensors, path, metadata)
    except safetensors.SafetensorError as error:
        raise OSError(str(error)) from error
    return metadata["sha256"]


def load(path, *, verify=True, **handed):
    """Read an estimator that :func:`save` wrote. No code of the file is run.

    Parameters
    ----------
    path : str or path-like
        The file. Its tensors are mapped into memory: rows are read when they are needed.
    verify : bool, default=True
        Whether to compare the checksum, which reads the whole file once.
    **handed : object
        Parameters that the file cannot hold, by their names, such as ``feature_extractor=``.

    Returns
    -------
    estimator : object
        The estimator, on the CPU, of the class that was saved.

    Raises
    ------
    ValueError
        If the file is damaged, of a newer format, or not one that :func:`save` wrote; or if a
        module that is handed does not fit the weights in it.
    TypeError
        If other parameters are handed than the file needs.
    FileNotFoundError
        If there is no such file.

    See Also
    --------
    save : Write it.

    Notes
    -----
    The checksum tells accidents, not intent: whoever can change a file can write a checksum. A
    file of somebody else's can hold any numbers, and so any predictions, but it cannot run code.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import nona_sklearn
    >>> path = Path(tempfile.mkdtemp(), "not_fitted.safetensors")
    >>> nona_sklearn.save(nona_sklearn.NONARegressor(n_estimators=1), path)
    >>> nona_sklearn.load(path)
    NONARegressor(n_estimators=1)
    """
    path = as_path("path", path)
    check_flag("verify", verify)
    estimator = read(path, handed, verify)
    if type(estimator) not in ESTIMATORS:
        raise ValueError(f"{path} holds no estimator, but a {type(estimator).__name__}")
    return estimator


def read(
    path: Path,
    handed: Mapping[str, Any] | None = None,
    verify: bool = True,
    checksum: str | None = None,
) -> Any:
    """Read what :func:`write` wrote; it must have the checksum, if one is known."""
    if not path.is_file():
        raise FileNotFoundError(f"path must be a file that save wrote, there is none at {path}")
    metadata, tensors = _read(path)
    if checksum is not None and metadata["sha256"] != checksum:
        raise ValueError(f"{path} is damaged: it is another file than was written there")
    if verify and _checksum(metadata, tensors) != metadata["sha256"]:
        raise ValueError(f"{path} is damaged: its checksum does not fit what it holds")
    handed = handed or {}
    with decoding(path, "holds what no version wrote"):
        needed, made_by, content = _parse(metadata, tensors)
    _check_handed(path, needed, handed)
    with decoding(path, f"of nona_sklearn {made_by} holds what this version cannot read"):
        return Decoder(tensors, handed).decode(content)


@contextmanager
def decoding(path: Path, what: str) -> Iterator[None]:
    """Name the file in any error of the block: a forged file may cause any."""
    try:
        yield
    except MismatchError as error:
        parameter, reason = error.args
        raise ValueError(f"{parameter} does not fit the file {path}: {reason}") from error
    except Exception as error:
        raise ValueError(f"{path} {what}: {_said(error)}") from error


def _said(error: Exception) -> str:
    try:
        return f"{error!r:.200}"
    except Exception:  # it holds an object of the file, which is not complete
        return type(error).__name__


def _parse(
    metadata: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, str], str, Any]:
    """Parameters that are to be handed and what they were; the version; and what is written."""
    needed, versions = json.loads(metadata["handed"]), json.loads(metadata["versions"])
    if not isinstance(needed, dict) or not all(isinstance(was, str) for was in needed.values()):
        raise TypeError("the parameters to be handed must be a dict of texts")
    text = tensors[CONTENT].numpy().tobytes().decode("utf-8", "surrogatepass")
    return needed, f"{versions['nona_sklearn']!s:.50}", json.loads(text)


def _check_handed(path: Path, needed: Mapping[str, str], handed: Mapping[str, Any]) -> None:
    if missing := needed.keys() - handed.keys():
        name = min(missing)
        raise TypeError(
            f"{path} needs {name}, which a file cannot hold; it was {needed[name]}: "
            f"load(path, {name}=...)"
        )
    if more := handed.keys() - needed.keys():
        raise TypeError(f"load was handed {min(more)}, which {path} does not need")


def _versions() -> dict[str, str]:
    return {
        "nona_sklearn": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of all that a file says: its metadata, and each tensor's name, kind and bytes."""
    said = {key: value for key, value in metadata.items() if key != "sha256"}
    shapes = {name: [str(t.dtype), *t.shape] for name, t in tensors.items()}
    digest = hashlib.sha256(json.dumps([said, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(_bytes(tensors[name]).data)
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> np.ndarray:
    """The memory of a contiguous tensor."""
    # One number may be contiguous with any stride, which a view as bytes does not like.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What a file holds: its metadata, and its tensors, mapped into memory."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError:
        raise
    except Exception as error:
        if not path.exists():  # any more: torch opens it once more, and has no error of its own
            raise FileNotFoundError(f"{path} was deleted while it was read") from error
        raise ValueError(f"{path} is damaged, or not a file that save wrote: {error}") from error
    missing = {"format", "handed", "versions", "sha256"} - metadata.keys()
    if missing := missing | ({CONTENT} - tensors.keys()):
        raise ValueError(f"{path} is not a file that save wrote: it has no {min(missing)}")
    if not re.fullmatch(r"\d{1,9}", metadata["format"]) or int(metadata["format"]) > FORMAT:
        raise ValueError(
            f"{path} is of format {metadata['format']:.20}, and this version of nona_sklearn "
            f"reads up to {FORMAT}: it was written by a newer one"
        )
    return metadata, tensors
