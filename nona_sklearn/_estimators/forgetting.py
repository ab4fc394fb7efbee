"""Rows that are forgotten: what only they had, and a receipt."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._data.table_encoder import TableEncoder
from .._inference.bank import NeighborBank
from .._utils.files import as_path
from .._utils.snapshots import EDITING

STAYS = (
    "the weights of the networks, the scaling of columns, whose medians and quantiles may be "
    "values of rows, the shares and mean targets of levels, the weights that a trend gives to "
    "features, its calibration to probabilities, a model that is the trend, the calibration "
    "of distributions, with ranks of errors, the vocabulary of texts and the labels of classes, "
    "to which the rows have contributed; and the ids of the rows, as numbers"
)


@dataclass(frozen=True)
class RemovalReceipt:
    """Receipt of :meth:`~nona_sklearn.NONARegressor.remove_neighbors`: what it removed.

    It contains no feature, target or name of a removed row.

    Parameters
    ----------
    ids : list of int
        Ids of the removed rows.
    n_left : int
        Number of remaining rows.
    n_levels : dict of str to int
        Number of levels that were removed with the rows, for each column of categories.
    before, after : str
        SHA-256 checksums of the stored rows and the encoding of columns, before and after.
    time : str
        Time of the removal, in UTC and the format of ISO 8601.
    stays : str
        What training learned from the rows, which stays.

    Examples
    --------
    >>> from nona_sklearn import SoftStepKNeighborsRegressor
    >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
    >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
    >>> receipt = knn.fit(X, y).remove_neighbors(ids=[1, 3], return_receipt=True)
    >>> receipt.ids, receipt.n_left
    ([1, 3], 3)
    >>> len(receipt.before)
    64
    """

    ids: list[int]
    n_left: int
    n_levels: dict[str, int]
    before: str
    after: str
    time: str
    stays: str = STAYS

    def append_to(self, path):
        """Add the receipt to a log, as one line of JSON.

        Parameters
        ----------
        path : str or path-like
            The log; a new file is created if it does not exist.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> log = Path(tempfile.mkdtemp(), "removed.jsonl")
        >>> for i in (0, 3):
        ...     knn.fit(X, y).remove_neighbors(ids=[i], return_receipt=True).append_to(log)
        >>> len(log.read_text().splitlines())
        2
        """
        with open(as_path("path", path), "a", encoding="utf-8") as log:
            log.write(json.dumps(asdict(self)) + "\n")


def forget_levels(estimator: Any, before: NeighborBank) -> dict[str, int]:
    """Remove the levels from which all rows are gone since an earlier bank; how many, by column.

    A level of which no row was in the earlier bank, such as after a compression, stays.
    """
    with EDITING.held():
        encoder, bank = getattr(estimator, "features_", None), estimator.bank_
        if before.levels is None or bank.levels is None or not isinstance(encoder, TableEncoder):
            return {}
        removed = torch.isin(before.ids.cpu(), bank.ids.cpu(), invert=True)
        pairs = zip(levels_held([before.levels[removed]]), levels_held([bank.levels]), strict=True)
        gone = [own - left for own, left in pairs]
        if any(gone):
            estimator.features_ = encoder.without_levels(gone)
        return {
            str(name): len(codes)
            for name, codes in zip(encoder.category_names, gone, strict=True)
            if codes
        }


def levels_held(levels: Iterable[Tensor | None]) -> list[set[int]]:
    """Codes of the levels that rows have, of each category; their levels (n, n_categories)."""
    held: list[set[int]] = []
    for codes in levels:
        own = [] if codes is None else [{*column.unique().tolist()} - {-1} for column in codes.T]
        held = [a | b for a, b in zip(held, own, strict=True)] if held and own else held or own
    return held


def make_receipt(
    before: NeighborBank, after: NeighborBank, encoders: tuple[Any, Any], n_levels: dict[str, int]
) -> RemovalReceipt:
    """The receipt of a removal, with the encoders of columns before and after."""
    removed = np.setdiff1d(before.ids.cpu().numpy(), after.ids.cpu().numpy())
    checksums = _checksum(before, encoders[0]), _checksum(after, encoders[1])
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return RemovalReceipt(removed.tolist(), len(after), n_levels, *checksums, now)


def _checksum(bank: NeighborBank, encoder: Any) -> str:
    """SHA-256 of a bank, and of the levels that the encoding of columns stores."""
    digest = hashlib.sha256()
    state = bank.__getstate__()
    arrays = state.pop("arrays")
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    names = None if state["names"] is None else state["names"].tolist()
    levels = encoder.stored_levels() if isinstance(encoder, TableEncoder) else None
    digest.update(repr([names, state["target_names"], state["numbered"], levels]).encode())
    return digest.hexdigest()
