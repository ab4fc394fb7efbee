"""Files of estimators that hold data and no code: save and load."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from torch import Tensor

from .._utils.files import as_path, destination, put_in_place
from .._utils.storable import CLASSES, ESTIMATORS, FUNCTIONS, storable_parameters
from .._utils.validation import check_flag, import_extra
from .._version import __version__
from .codec import Decoder, Encoder, MemoryBudget, MismatchError, ObjectChecker, UnknownError

CONTENT = "estimator"  # the tensor that holds the JSON, as UTF-8
FORMAT = 1  # this version writes this format, and reads up to it
MANIFEST = "shards.json"  # of a folder of save_shards
#: The first bytes of pickles, also of the pickles that joblib has compressed.
PICKLES = (
    *(bytes([0x80, protocol]) for protocol in range(2, 6)),
    b"x\x01",
    b"x^",
    b"x\x9c",
    b"x\xda",
    b"\x1f\x8b",
    b"BZ",
    b"\xfd7z",
    b"]\x00\x00",
    b"\x04\x22M",
)
LIBRARIES = "numpy", "safetensors", "scikit-learn", "scipy", "skorch", "torch"
MADE_OF = "estimator must be made of parts of scikit-learn and of this package"


def save(estimator: Any, path: Any, *, overwrite: bool = False) -> None:
    """Save an estimator, or a model around one, in one file that contains data and no code.

    The file of an estimator has the safetensors format. Networks, bank and further numbers are
    tensors. One tensor is JSON, with parameters, columns, classes, names and calibration. A
    checksum covers the whole file.

    Parameters
    ----------
    estimator : NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, \
            SoftStepKNeighborsClassifier, NONASurvivalAnalysis, TableEncoder, or a model of \
            scikit-learn
        The estimator, fitted or not. A model, such as a :class:`~sklearn.pipeline.Pipeline` or a
        :class:`~sklearn.compose.TransformedTargetRegressor`, may consist of parts of scikit-learn
        and of this package. skops (extra ``skops``) writes it in its own format. For a search,
        save the ``best_estimator_``.
    path : str or path-like
        The file to write. It is written next to the path, and moved there when it is complete.
    overwrite : bool, default=False
        Whether to replace an existing file.

    Raises
    ------
    TypeError
        If `estimator` is no estimator of this package or of scikit-learn, or has a part that a
        file cannot contain.
    ImportError
        If `estimator` is a model of scikit-learn, and skops is not installed.
    OSError
        If `path` exists and `overwrite` is False (FileExistsError), or the file cannot be
        written. An existing file is then not changed.

    See Also
    --------
    load : Load the estimator again.

    Notes
    -----
    Parameters that a file cannot contain must be passed to :func:`load` by their names: a
    `feature_extractor` (its fitted weights are in the file), or its ``module``, ``collate_fn`` and
    ``accelerator``, ``training__callbacks``, a transformer as `algorithm`, and a custom
    `weighting`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import nona_sklearn
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = nona_sklearn.SoftStepKNeighborsRegressor(2, weighting="uniform", max_iter=1)
    >>> path = Path(tempfile.mkdtemp(), "flats.safetensors")
    >>> nona_sklearn.save(knn.fit(X, y), path)
    >>> nona_sklearn.load(path).predict([[84]]).round()
    array([425.])
    """
    path = as_path("path", path)
    check_flag("overwrite", overwrite)
    if isinstance(estimator, BaseEstimator) and type(estimator).__module__.startswith("sklearn."):
        _write_model(estimator, destination(path, overwrite))
        return
    if type(estimator) not in ESTIMATORS:
        kinds = sorted(ESTIMATORS, key=lambda kind: not hasattr(kind, "predict"))
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"estimator must be one of {names}, or a model of scikit-learn, got {estimator!r:.100}"
        )
    refuse_model_trend(estimator, "a file without code", "use pickle or skops, or trend='kernel'")
    write(estimator, destination(path, overwrite))


def refuse_model_trend(estimator: Any, place: str, remedy: str) -> None:
    """Raise if the trend of an estimator is a model, for a place that holds numbers only."""
    if hasattr(getattr(estimator, "trend_", None), "fit"):
        model = f"{estimator.trend!r:.100}"
        raise TypeError(f"trend must be no model for {place}, got {model}: {remedy}")


def write(thing: Any, path: Path) -> str:
    """Write an estimator, or a part of one, as :func:`save` does, and return its checksum."""
    encoder = Encoder()
    try:
        written = encoder.encode(thing, type(thing).__name__)
    except UnknownError as error:
        raise TypeError(
            f"a file cannot hold this estimator: {error}; pickle or skops may hold it"
        ) from None
    content = bytearray(_to_json(written).encode("utf-8", "surrogatepass"))
    tensors = encoder.tensors | {CONTENT: torch.frombuffer(content, dtype=torch.uint8)}
    metadata = {
        "format": str(FORMAT),
        "handed": _to_json(encoder.external),
        "versions": _to_json(
            {
                "nona_sklearn": __version__,
                "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in LIBRARIES},
            }
        ),
    }
    metadata["sha256"] = _checksum(metadata, tensors)
    with put_in_place(path) as beside:
        try:
            safetensors.torch.save_file(tensors, beside, metadata)
        except safetensors.SafetensorError as error:
            raise OSError(str(error)) from error
    return metadata["sha256"]


def load(path: Any, *, verify: bool = True, **external: Any) -> Any:
    """Load an estimator that :func:`save` wrote, without running code of the file.

    Parameters
    ----------
    path : str or path-like
        The file. The tensors of an estimator are memory-mapped, so that rows are read when they
        are needed. A model is read as a whole.
    verify : bool, default=True
        Whether to compare the checksum of an estimator. The comparison reads the whole file once.
    **external : object
        Parameters that the file cannot contain, by name, such as ``feature_extractor=``.

    Returns
    -------
    estimator : object
        The estimator, on the CPU, of the class that was saved.

    Raises
    ------
    ValueError
        If the file is damaged, has a newer format, or was not written by :func:`save`; or if a
        passed module does not fit the weights in the file.
    TypeError
        If the passed parameters are not the parameters that the file needs.
    FileNotFoundError, IsADirectoryError
        If there is no file at `path`, or `path` is a folder.

    See Also
    --------
    save : Save an estimator.

    Notes
    -----
    The checksum detects damage, but not manipulation: an attacker who changes a file can also
    change its checksum. A file of unknown origin can contain any numbers, and thus lead to any
    predictions, but it cannot run code.

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
    if path.is_file() and zipfile.is_zipfile(path):
        _check_external(path, {}, external)
        return _read_model(path)
    estimator = read(path, external, verify)
    if type(estimator) not in ESTIMATORS:
        raise ValueError(f"{path} holds no estimator, but a {type(estimator).__name__}")
    return estimator


def read(
    path: Path,
    external: Mapping[str, Any] | None = None,
    verify: bool = True,
    checksum: str | None = None,
) -> Any:
    """Return the object that :func:`write` wrote. A `checksum` must be the file's."""
    if path.is_dir():
        remedy = ": ShardedNeighbors(path) reads it" * (path / MANIFEST).is_file()
        raise IsADirectoryError(
            f"path must be a file that save wrote, and {path} is a folder{remedy}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"path must be a file that save wrote, there is none at {path}")
    metadata, tensors = _read(path)
    if checksum is not None and metadata["sha256"] != checksum:
        raise ValueError(f"{path} is damaged: it is another file than was written there")
    if verify and _checksum(metadata, tensors) != metadata["sha256"]:
        raise ValueError(f"{path} is damaged: its checksum does not fit what it holds")
    external = external or {}
    with decoding(path, "holds what no version wrote"):
        needed, versions = json.loads(metadata["handed"]), json.loads(metadata["versions"])
        if not isinstance(needed, dict) or not all(
            isinstance(was, str) for was in needed.values()
        ):
            raise TypeError("the parameters to be passed must be a dict of texts")
        version = f"{versions['nona_sklearn']!s:.50}"
        content = json.loads(tensors[CONTENT].numpy().tobytes().decode("utf-8", "surrogatepass"))
    _check_external(path, needed, external)
    with decoding(path, f"of nona_sklearn {version} holds what this version cannot read"):
        held = Decoder(tensors, external).decode(content)
        return held.upgraded() if isinstance(held, ApproximateNeighborsRegressor) else held


def checksum_of(path: Path) -> str:
    """Return the checksum in a file that :func:`write` wrote, without comparing its content."""
    return _read(path)[0]["sha256"]


@contextmanager
def decoding(path: Path, what: str) -> Iterator[None]:
    """Name the file in all errors of the block, since a forged file may cause any error."""
    try:
        yield
    except MismatchError as error:
        parameter, reason = error.args
        raise ValueError(f"{parameter} does not fit the file {path}: {reason}") from error
    except Exception as error:
        try:
            text = f"{error!r:.200}"
        except Exception:  # the error holds an incomplete object of the file
            text = type(error).__name__
        raise ValueError(f"{path} {what}: {text}") from error


def _check_external(path: Path, needed: Mapping[str, str], external: Mapping[str, Any]) -> None:
    if missing := needed.keys() - external.keys():
        name = min(missing)
        raise TypeError(
            f"{path} needs {name}, which a file cannot hold; it was {needed[name]}: "
            f"load(path, {name}=...)"
        )
    if unneeded := external.keys() - needed.keys():
        raise TypeError(f"load was passed {min(unneeded)}, which {path} does not need")


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the metadata and of the tensors: names, dtypes, shapes, bytes."""
    covered = {key: value for key, value in metadata.items() if key != "sha256"}
    shapes = {name: [str(t.dtype), *t.shape] for name, t in tensors.items()}
    digest = hashlib.sha256(json.dumps([covered, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        # A single number may be contiguous with any stride, which a view as bytes refuses.
        flat = tensors[name].as_strided((tensors[name].numel(),), (1,))
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata of a file and its memory-mapped tensors."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError:
        raise
    except Exception as error:
        if not path.exists():  # torch opens the file a second time
            raise FileNotFoundError(f"{path} was deleted while it was read") from error
        with open(path, "rb") as opened:
            head = opened.read(9)
        # A file of safetensors starts with a length of 8 bytes, which ends with zeros, and {.
        if head.startswith(PICKLES) and head[3:] != bytes(5) + b"{":
            raise ValueError(
                f"{path} is no file that save wrote, and looks like a pickle: joblib.load reads "
                "it, and runs the code in it"
            ) from error
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


# -- models around an estimator, as files of skops ---------------------------------------------


def _write_model(model: BaseEstimator, path: Path) -> None:
    """Write a model of scikit-learn, or raise if :func:`_read_model` would not read it."""
    io = import_extra("a file of a model around an estimator", "skops.io", extra="skops")
    try:
        content = io.dumps(model)
        untrusted = _untrusted_types(io, content)
        if not untrusted:
            _make_model(io, content)
    except Exception as error:  # skops has no error of its own
        raise TypeError(f"{MADE_OF}, and skops cannot hold it: {error!r:.200}") from error
    if untrusted:
        raise TypeError(
            f"{MADE_OF}, got {untrusted[0]}: use skops.io.dump, or save the best_estimator_ of a "
            "search"
        )
    with put_in_place(path) as beside:
        beside.write_bytes(content)


def _read_model(path: Path) -> Any:
    """Return a model, or raise a ValueError if the file is damaged or holds unknown types."""
    io = import_extra("a file of a model around an estimator", "skops.io", extra="skops")
    with decoding(path, "is damaged, or not a file that save wrote"):
        _check_sizes(path)
        content = path.read_bytes()
        untrusted = _untrusted_types(io, content)
        if not untrusted:
            return _make_model(io, content)
    raise ValueError(
        f"{path} holds {untrusted[0]}, which is no part of scikit-learn or of this package: read "
        "what it is, and use skops.io.load"
    )


def _untrusted_types(io: Any, content: bytes) -> list[str]:
    """Return the types in a file that are neither of this package nor trusted by skops.

    skops trusts scikit-learn's estimators, and NumPy's and SciPy's arrays and functions.
    """
    parts: list[Any] = [*CLASSES.values(), *FUNCTIONS.values()]
    trusted = {f"{part.__module__}.{part.__qualname__}" for part in parts} | {"numpy.dtype"}
    return [name for name in io.get_untrusted_types(data=content) if name not in trusted]


def _make_model(io: Any, content: bytes) -> Any:
    model = io.loads(content, trusted=io.get_untrusted_types(data=content))
    ObjectChecker().dump(model)
    return model


def _check_sizes(path: Path) -> None:
    """Raise if an archive has compressed entries, which are larger in memory than in the file."""
    memory = MemoryBudget(path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{entry.filename:.50} is compressed")
            memory.charge(1, entry.file_size)  # several entries may share their bytes
            with archive.open(entry) as opened:
                if opened.read(2) == b"PK":  # archives of NumPy and SciPy may be compressed
                    raise ValueError(f"{entry.filename:.50} is an archive")


# -- an estimator of version 0.2.0 -------------------------------------------------------------


@storable_parameters()
class ApproximateNeighborsRegressor(BaseEstimator):
    """A regressor of version 0.2.0 that searches `n_candidates` rows with a graph."""

    def __init__(self, regressor, n_candidates=256):
        self.regressor = regressor
        self.n_candidates = n_candidates

    def upgraded(self) -> Any:
        """Return a regressor that weighs `n_candidates` rows per network, with the same graph."""
        regressor = getattr(self, "regressor_", self.regressor)
        while isinstance(regressor, FrozenEstimator):
            regressor = regressor.estimator
        n_neighbors = int(self.n_candidates)
        if hasattr(regressor, "bank_"):
            neighbors = regressor.bank_.neighbors.searched_by("hnsw")
            neighbors.cache.graphs = getattr(self, "_index", None)
            regressor.bank_ = replace(regressor.bank_, neighbors=neighbors)
            z = neighbors.embeddings[:0]
            parts = regressor.network_.head.split_by_head(z, z)
            for head, _, _ in parts:
                head.n_neighbors = int(self.n_candidates)
            n_neighbors *= len(parts)
        return regressor.set_params(algorithm="hnsw", n_neighbors=n_neighbors)
