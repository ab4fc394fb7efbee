"""Users' paths, and files and folders that are written completely or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def as_path(name: str, value: Any) -> Path:
    """Return a parameter's value as a path; raise an error that names both if it is none."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a str or path-like, got {value!r}")
    text = os.fspath(value)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{name} must name a place on disk, got {text!r}")
    return Path(text)


def destination(path: Path, overwrite: bool) -> Path:
    """Return where to write for a user's path, which is the target of a link.

    Raise an OSError if the destination is not writable.
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
    """Yield a path to a temporary file, which replaces the file or link at `path` after the block.

    The file is in a new folder beside `path`, since a library may write further files next to it.
    If the block fails, or the file cannot be moved (OSError), `path` does not change.
    """
    beside = _beside(path)
    place = beside / path.name
    try:
        beside.mkdir(mode=0o700)
        place.touch()  # gives the mode of new files
        mode = (place if path.is_symlink() or not path.is_file() else path).stat().st_mode
        yield place
        place.chmod(mode)
        further = [part for part in beside.iterdir() if part != place]  # of a graph beyond 2 GB
        for part in (*further, place):
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(part, path.with_name(part.name))
    except OSError as error:
        # The error would name a hidden folder inside the missing one.
        reason = error if path.parent.is_dir() else f"there is no folder {str(path.parent)!r}"
        raise OSError(f"{path} could not be written: {reason}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is moved to `path`, or deleted on an error."""
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
