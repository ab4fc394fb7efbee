"""Folders of banks in shards: the files of shards, and the manifest that lists them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from .._inference.bank import NeighborBank
from .._persistence.file import MANIFEST, decoding, read, write
from .._utils.files import put_in_place
from .._utils.threads import ForkSafeLock
from .._utils.validation import is_whole

ESTIMATOR = "estimator.safetensors"
LOCK = "edits.lock"  # locked during an edit; released if the edit's process ends
MAPPED_BYTES = 2**26  # size of the shards' files that a process keeps mapped
VERIFIED = 2**14  # number of files that a process does not verify again
SHARD = r"shard-[0-9]{5,19}\.safetensors"
#: A killed edit leaves unlisted shards, and a folder beside the file that it wrote. Version 0.2.0
#: left a file with the name of such a folder, or with a name by safetensors.
ESTIMATORS = r"estimator(-[0-9]{5,19})?\.safetensors"
BESIDE = rf"\.({SHARD}|{ESTIMATORS}|{re.escape(MANIFEST)})\.[0-9a-f]{{32}}"
LEFT = rf"{SHARD}|{ESTIMATORS}|{BESIDE}|\.tmp[0-9A-Za-z]{{6}}"


@dataclass(frozen=True)
class Entry:
    """A shard in the manifest: its file, the file's checksum, and its rows' number and ids."""

    path: Path
    sha256: str
    n_rows: int
    first: int
    last: int

    def open(self) -> NeighborBank:
        """Return the mapped shard. Raise a FileNotFoundError (missing) or ValueError (damaged)."""
        return CACHE.read(self)

    def read(self, verify: bool) -> NeighborBank:
        """Return the mapped shard. `verify` compares the checksum of its content."""
        held = read(self.path, verify=verify, checksum=self.sha256)
        bank = held.get("bank") if isinstance(held, dict) else None
        if not isinstance(bank, NeighborBank) or held.keys() - {"graphs"} != {"bank"}:
            raise ValueError(f"{self.path} is damaged: it holds no shard")
        if (graphs := held.get("graphs")) is not None:  # of version 0.2.0
            bank.neighbors.cache.graphs = graphs
        ends = [*bank.ids[:1].tolist(), *bank.ids[-1:].tolist()]
        if len(bank) != self.n_rows or ends != [self.first, self.last]:
            raise ValueError(f"{self.path} is damaged: it holds other rows than are listed")
        return bank


class ShardCache:
    """The mapped shards that this process read last, and the files that it verified.

    A shard keeps its data for comparisons with queries. Memory is bounded, and a small bank is
    prepared once.
    """

    def __init__(self) -> None:
        self.mapped: dict[tuple[Entry, int], tuple[NeighborBank, int]] = {}
        self.verified: dict[tuple[Entry, int], None] = {}  # the last file comes last
        self.lock = ForkSafeLock()

    def read(self, entry: Entry) -> NeighborBank:
        """Return a mapped shard, verified when this process first reads its file."""
        path = entry.path
        try:
            about = os.stat(path)
        except FileNotFoundError:
            raise FileNotFoundError(f"shard {path.name} is missing from {path.parent}") from None
        key = entry, about.st_mtime_ns
        with self.lock.held():
            shard, _ = self.mapped.pop(key, (None, 0))
            if shard is None:
                shard = entry.read(verify=key not in self.verified)
            self.mapped[key] = shard, about.st_size
            while len(self.mapped) > 1 and self._n_bytes() > MAPPED_BYTES:
                del self.mapped[next(iter(self.mapped))]
            self.verified.pop(key, None)
            self.verified[key] = None
            if len(self.verified) > VERIFIED:
                del self.verified[next(iter(self.verified))]
        return shard

    def _n_bytes(self) -> int:
        return sum(size for _, size in self.mapped.values())


CACHE = ShardCache()


@dataclass(frozen=True)
class Folder:
    """The content of a manifest. A change returns a new folder, which :meth:`write` writes."""

    path: Path
    estimator: str  # checksum of the estimator's file
    next_id: int  # of the next row that is added
    next_number: int = 0  # of the next file: numbers of files that were ever listed are not reused
    shards: tuple[Entry, ...] = ()  # in the order of the rows' ids
    estimator_file: str = ESTIMATOR

    @classmethod
    def new(cls, path: Path, estimator: Any, next_id: int) -> Folder:
        """Return a folder with the estimator, whose bank is empty, and without shards."""
        return cls(path, write(estimator, path / ESTIMATOR), next_id)

    @classmethod
    def read(cls, path: Path) -> Folder:
        """Return the manifest. Raise a FileNotFoundError (missing) or ValueError (damaged)."""
        manifest = path / MANIFEST
        if not manifest.is_file():
            raise FileNotFoundError(
                f"folder must be one that save_shards wrote, there is no {MANIFEST} in {path}"
            )
        text = manifest.read_bytes()
        with decoding(manifest, "is damaged"):
            content = json.loads(text)
            if content.pop("sha256") != _sha256(content):
                raise ValueError("its checksum does not fit what it lists")
            shards = content.pop("shards")
            if not all(re.fullmatch(SHARD, shard["path"]) for shard in shards) or not shards:
                raise ValueError("it must list shards of its folder")
            entries = (Entry(**(shard | {"path": path / shard["path"]})) for shard in shards)
            folder = cls(path, shards=tuple(entries), **content)
            folder._check()
        return folder

    def _check(self) -> None:
        """Raise if a value is no number, or ids or files overlap, since no edit writes it."""
        low = 0
        _check_checksum("estimator", self.estimator)
        if not re.fullmatch(ESTIMATORS, self.estimator_file):
            raise ValueError(f"estimator_file must be of the folder, got {self.estimator_file!r}")
        for entry in self.shards:
            name = entry.path.name
            _check_checksum(f"sha256 of {name}", entry.sha256)
            _check_whole(f"first of {name}", entry.first, low)
            _check_whole(f"last of {name}", entry.last, entry.first)
            _check_whole(f"n_rows of {name}", entry.n_rows, 1, entry.last - entry.first + 1)
            low = entry.last + 1
        _check_whole("next_id", self.next_id, low)
        numbers = [int(entry.path.stem.removeprefix("shard-")) for entry in self.shards]
        _check_whole("next_number", self.next_number, max(numbers) + 1)

    @classmethod
    @contextmanager
    def editing(cls, path: Path) -> Iterator[Folder]:
        """Yield the manifest under a lock, and delete unlisted files in the end."""
        cls.read(path)  # FileLock would create a missing folder
        lock = path / LOCK
        # Some versions of filelock empty the target of a link.
        if lock.is_symlink() or lock.is_dir():
            raise ValueError(f"{lock} must be a file of the folder's own, not a link or folder")
        with FileLock(lock):
            before = cls.read(path)
            try:
                yield before
            finally:
                cls.read(path)._tidy()

    def put(self, bank: NeighborBank, replaced: Entry | None = None) -> Folder:
        """Write a shard and return the folder with it, in place of `replaced` or at the end."""
        path = self.path / f"shard-{self.next_number:05d}.safetensors"
        # An existing file with this name was never listed: its edit was interrupted.
        checksum = write({"bank": bank}, path)
        new = Entry(path, checksum, len(bank), int(bank.ids[0]), int(bank.ids[-1]))
        shards = tuple(new if entry is replaced else entry for entry in self.shards)
        shards = shards if replaced else (*shards, new)
        return replace(self, shards=shards, next_number=self.next_number + 1)

    def put_estimator(self, estimator: Any) -> Folder:
        """Write a new estimator and return the folder with it."""
        name = f"estimator-{self.next_number:05d}.safetensors"
        checksum, number = write(estimator, self.path / name), self.next_number + 1
        return replace(self, estimator=checksum, estimator_file=name, next_number=number)

    def without(self, entries: Collection[Entry]) -> Folder:
        """Return the folder without the shards of `entries`."""
        left = tuple(entry for entry in self.shards if entry not in entries)
        return replace(self, shards=left)

    def write(self) -> None:
        """Write the manifest, or raise if it could not be read, as for too large numbers."""
        with decoding(self.path / MANIFEST, "cannot be written"):
            self._check()
        shards = [asdict(entry) | {"path": entry.path.name} for entry in self.shards]
        content = vars(self) | {"shards": shards}
        del content["path"]
        with put_in_place(self.path / MANIFEST) as beside:
            beside.write_text(json.dumps(content | {"sha256": _sha256(content)}, indent=1))

    def _tidy(self) -> None:
        """Delete unlisted files of edits, and folders of interrupted edits, not links' targets."""
        listed = {self.estimator_file, *(entry.path.name for entry in self.shards)}
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                if re.fullmatch(BESIDE, path.name):
                    shutil.rmtree(path)
            elif re.fullmatch(LEFT, path.name) and path.name not in listed:
                path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return sum(entry.n_rows for entry in self.shards)


def _check_whole(name: str, value: Any, low: int, high: int = 2**62) -> None:
    if not is_whole(value, low, high):
        raise ValueError(f"{name} must be an integer from {low} to {high}, got {value!r:.50}")


def _check_checksum(name: str, value: Any) -> None:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{name} must be a SHA-256 in hexadecimal, got {value!r:.50}")


def _sha256(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
