"""Edits of the bank: rows come and go, and the network stays as it is."""

import threading
from numbers import Integral

import numpy as np
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from ._bank import NeighborBank
from ._distribution import calibrate_on_bank

COMPRESSION_PAIRS = 2**28  # of queries and rows, which a compression walks over many times
_EDITING = threading.Lock()  # one edit at a time; readers keep the bank they began with


class EditableBankMixin:
    """Verbs that put another bank in the place of ``bank_``."""

    def add_neighbors(self, X, y):
        """Let labelled rows take part in predictions, without training.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to add.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        ndarray of shape (n_samples,)
            Their names (ids), which no other row had or will have.

        Raises
        ------
        ValueError
            If `X` or `y` is invalid or has other columns than those given to fit.
        """
        check_is_fitted(self)
        embeddings = self._validate_and_embed(X)
        with _EDITING:
            targets = self._check_targets(y, len(embeddings), self.bank_)
            self.bank_ = self.bank_.add(embeddings, targets)
            return self.bank_.ids[-len(embeddings) :].cpu().numpy()

    def remove_neighbors(self, ids):
        """Forget rows: neither the estimator nor its pickle holds their embedding or target.

        What training took from them, the network's weights and the features' scale, stays.

        Parameters
        ----------
        ids : int or array-like of int
            Names of the rows, as :meth:`kneighbors` gives them: row numbers in the data given
            to fit, and what :meth:`add_neighbors` returned. The other rows keep theirs.

        Returns
        -------
        self : object
            Without these rows.

        Raises
        ------
        ValueError
            If a name is unknown or no row would be left. Nothing is removed then.
        """
        check_is_fitted(self)
        ids = _check_ids(ids)
        with _EDITING:
            gone = self.bank_.positions(ids)
            kept = np.setdiff1d(np.arange(len(self.bank_)), gone)
            if len(kept) == 0:
                raise ValueError(f"ids must leave at least one row, got all {len(self.bank_)}")
            self.bank_ = self.bank_.keep(kept)
        return self

    def set_neighbor_targets(self, y):
        """Predict something else by the same neighbours.

        Parameters
        ----------
        y : array-like of shape (n_neighbors,) or (n_neighbors, n_outputs)
            A target for each row of the bank, in its order.

        Returns
        -------
        self : object
            With these targets, and distributions calibrated on them, each row without itself.

        Raises
        ------
        ValueError
            If `y` is invalid or has another number of rows than the bank.
        """
        check_is_fitted(self)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", copy=True)
        with _EDITING:
            bank = self.bank_
            if y.ndim > 2 or len(y) != len(bank):
                raise ValueError(f"y must have the bank's {len(bank)} rows, got shape {y.shape}")
            targets = torch.as_tensor(y, device=bank.targets.device)
            bank = NeighborBank(bank.embeddings, targets, bank.ids, bank.next_id)
            calibration = calibrate_on_bank(self.network_.head, bank)
            self.bank_, self.calibration_ = bank, calibration
        return self

    def compress(self, n_neighbors, X=None):
        """Keep rows that together carry the weight of the predictions, and forget the others.

        Parameters
        ----------
        n_neighbors : int
            Number of rows to keep.
        X : array-like of shape (n_queries, n_features), optional
            Queries whose predictions should stay. None: the bank's rows, a random sample of
            them where the bank is large.

        Returns
        -------
        self : object
            With a bank of `n_neighbors` rows, which keep their names and order.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows.

        Notes
        -----
        The heaviest rows alone would be those where rows are many. Rows are chosen greedily
        for the sum over the queries of the square root of the weight that is kept, where a
        query that has a row needs the next one less.
        """
        check_is_fitted(self)
        with _EDITING:
            bank = self.bank_
            if not isinstance(n_neighbors, Integral) or not 1 <= n_neighbors <= len(bank):
                raise ValueError(
                    f"n_neighbors must be an integer from 1 to {len(bank)}, got {n_neighbors!r}"
                )
            if X is None:
                sample = np.random.RandomState(0).permutation(len(bank))
                query = bank.embeddings[sample[: COMPRESSION_PAIRS // len(bank)]]
            else:
                query = self._validate_and_embed(X)
            kept = bank.representatives(self.network_.head, query, n_neighbors)
            self.bank_ = bank.keep(kept)
        return self


def _check_ids(ids):
    ids = np.atleast_1d(ids)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise ValueError(f"ids must be integers, got {ids!r}")
    return ids.astype(np.int64)
