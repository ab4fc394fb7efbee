"""Paths of the user's, and files and folders that are complete or not there."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def as_path(name: str, value: Any) -> Path:
    """Make a path of a parameter's value, or name both."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a str or path-like, got {value!r}")
    text = os.fspath(value)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{name} must name a place on disk, got {text!r}")
    return Path(text)


def destination(path: Path, overwrite: bool) -> Path:
    """Find where to write for a path of the user's: a link stays, and leads to the new file.

    Raises an OSError if nothing may be written there.
    """
    if path.is_dir():
        raise IsADirectoryError(f"path must be a file, got the directory {str(path)!r}")
    if path.exists() and not path.is_file():
        raise OSError(f"path must be a file, got {str(path)!r}, a device or a pipe")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"path must be new, got {str(path)!r}; or set overwrite=True")
    return Path(os.path.realpath(path))


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


@contextmanager
def put_in_place(path: Path) -> Iterator[Path]:
    """Yield a path to write to; what is written there then replaces a file or a link at `path`.

    It is in a folder of its own beside `path`, for other files that a library writes next to it.
    If the block fails, or the file cannot be moved (OSError), what was at `path` stays.
    """
    beside = _beside(path)
    place = beside / path.name
    try:
        beside.mkdir(mode=0o700)
        place.touch()  # with the mode of new files
        mode = (place if path.is_symlink() or not path.is_file() else path).stat().st_mode
        yield place
        place.chmod(mode)
        others = [each for each in beside.iterdir() if each != place]  # of a graph beyond 2 GB
        for each in (*others, place):
            with open(each, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(each, path.with_name(each.name))
    except OSError as error:
        raise OSError(f"{path} could not be written: {_reason(error, path)}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _reason(error: OSError, path: Path) -> str:
    """What is wrong, without the name of the hidden folder that was to hold the new file."""
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    return str(error)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write to, which is then moved to `path`, or deleted on an error."""
    if os.path.lexists(path):
        raise FileExistsError(f"folder must be new, got {str(path)!r}, where something is")
    beside = _beside(path)
    try:
        beside.mkdir(parents=True)
        yield beside
        beside.rename(path)
    except OSError as error:
        raise OSError(f"folder {str(path)!r} could not be written: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
