"""What can be asked of a fitted neighbour estimator, and edits of its bank."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.embedded import Embedded
from .._data.names import Names, free_name, labels_of, target_names_of
from .._data.sample_weight import check_sample_weight, log_prior
from .._data.targets import Split, check_lengths
from .._inference.bank import NeighborBank
from .._inference.evaluation import Evaluation
from .._inference.explanation import OTHERS, Explanation
from .._inference.neighbors import Neighbors
from .._training.trainer import check_convergence
from .._utils.frames import table
from .._utils.snapshots import EDITING, snapshot
from .._utils.validation import (
    check_choice,
    check_flag,
    check_ids,
    check_n_neighbors,
    check_some_left,
    is_real,
)
from .base import NetworkEstimator

CHECKED = 32  # predictions that must be numbers at the end of a fit
COMPRESSION_PAIRS = 2**28  # of queries and rows, which a compression walks over many times


class NeighborEstimator(NetworkEstimator):
    """An estimator that stores its embedded training rows as a bank, and answers from it.

    A method reads a snapshot of the estimator: another thread may edit the bank, or end a fit.
    """

    def _remember(self, X, values, groups, splits, names, given):
        embeddings = self._embed(X)
        prior = given.log_prior
        bank = NeighborBank(
            Neighbors(
                embeddings,
                values.to(embeddings.device),
                None if prior is None else prior.to(embeddings.device),
                self.targets_.unit.to(embeddings.device),
            ),
            ids=torch.as_tensor(given.numbers, device=embeddings.device),
            next_id=torch.tensor(given.n_given),
            groups=None if groups is None else torch.as_tensor(groups, device=embeddings.device),
            names=names.rows,
            numbered=names.rows is None,
            target_names=names.targets,
            weight_unit=given.unit,
        )
        settings = self._setting("learning_rate_init"), self.weight_decay
        check_convergence([embeddings], *settings)
        some = bank.evaluate(self.network_.head)[np.arange(min(CHECKED, len(bank)))]
        check_convergence([some.mean()], *settings)
        self.bank_ = self._calibrate(bank, splits)

    def _calibrate(self, bank: NeighborBank, splits: list[Split] | None = None) -> NeighborBank:
        """Let the bank know how far its answers err, by rows that a network did not see."""
        return bank

    def _weigh_added(self, values: Tensor, sample_weight: np.ndarray) -> np.ndarray:
        """Say how much rows of these targets count that join the bank, (n,)."""
        return sample_weight

    def _training_embeddings(self) -> Tensor:
        return self.bank_.embeddings

    # -- asking --------------------------------------------------------------------------

    def _evaluate(self, X) -> tuple[NeighborEstimator, Evaluation]:
        """Ask about queries, or about the bank's own rows, each without itself.

        What else the answer depends on is to be read from the snapshot that comes with it.
        """
        check_is_fitted(self)
        fitted = snapshot(self)
        if X is None and len(fitted.bank_) < 2:
            raise ValueError("X=None needs at least 2 rows in the bank, it has 1")
        query = None if X is None else fitted._validate_and_embed(X)
        return fitted, fitted.bank_.evaluate(fitted.network_.head, query)

    def _evaluate_in_blocks(self, X) -> tuple[NeighborEstimator, Iterator[Evaluation]]:
        """Ask about some queries at a time, so that memory does not grow with their number."""
        if X is None or isinstance(X, Embedded):
            fitted, evaluation = self._evaluate(X)
            return fitted, iter([evaluation])
        check_is_fitted(self)
        fitted = snapshot(self)
        bank, head = fitted.bank_, fitted.network_.head
        return fitted, (
            bank.evaluate(head, fitted._embed_queries(block)) for block in fitted._take(X)
        )

    def neighbor_weights(self, X=None, *, tolerance=0.0):
        """Weight of each row of the bank in the prediction of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        tolerance : float, default=0.0
            Weights up to this one are left out, and the others scaled to sum to 1.

        Returns
        -------
        sparse CSR array of shape (n_queries, n_neighbors)
            Weights; each row sums to 1. Column j is the j-th row of the bank. The product with the
            bank's targets, those given to fit, is the prediction, to rounding, where nothing is
            adjusted and ``tolerance=0``.

        Raises
        ------
        ValueError
            If `tolerance` is negative, or leaves a query without neighbours.
        """
        if not is_real(tolerance, 0, math.inf):
            raise ValueError(f"tolerance must not be negative, got {tolerance!r}")
        _, evaluation = self._evaluate(X)
        weights = evaluation.sparse_weights(tolerance)
        if (np.diff(weights.indptr) == 0).any():
            raise ValueError(f"tolerance={tolerance!r} leaves a query without neighbours")
        return weights

    def kneighbors(self, X=None, n_neighbors=5, return_distance=True, *, return_names=False):
        """Heaviest neighbours of each query, heaviest first.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        n_neighbors : int, default=5
            Number of neighbours to return.
        return_distance : bool, default=True
            Whether to return the weights of the neighbours. They are not distances: the
            parameter is named as in scikit-learn.
        return_names : bool, default=False
            Whether to return names instead of ids.

        Returns
        -------
        weights : ndarray of shape (n_queries, n_neighbors)
            Weights, not distances as in scikit-learn: the share that each neighbour has in
            the prediction. Rows of weight 0 are not neighbours, and come in no particular order.
            Only with ``return_distance=True``.
        ids : ndarray of shape (n_queries, n_neighbors)
            Which rows the neighbours are: row numbers in the data given to fit, and what
            :meth:`add_neighbors` returned. With ``return_names=True`` their names, as
            :meth:`explain` gives them.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows that are admitted: one
            less than all with ``X=None``.
        """
        check_flag("return_distance", return_distance)
        check_flag("return_names", return_names)
        bank, weights, positions = self._find_heaviest(X, n_neighbors)
        found = bank.names_of(positions) if return_names else bank.ids.cpu().numpy()[positions]
        return (weights, found) if return_distance else found

    def kneighbors_graph(self, X=None, n_neighbors=5, mode="connectivity"):
        """Heaviest neighbours of each query, as a graph.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        n_neighbors : int, default=5
            Number of neighbours of each query.
        mode : {'connectivity', 'weight'}, default='connectivity'
            What the entries are: ones, or weights, where scikit-learn has distances.

        Returns
        -------
        sparse CSR array of shape (n_queries, n_bank_rows)
            `n_neighbors` entries in each row, heaviest first. Column j is the j-th row of the
            bank: where none was removed, the row of that id.

        Raises
        ------
        ValueError
            If `mode` is none of these, or `n_neighbors` as for :meth:`kneighbors`.
        """
        check_choice("mode", mode, ("connectivity", "weight"))
        bank, weights, positions = self._find_heaviest(X, n_neighbors)
        entries = weights if mode == "weight" else np.ones(weights.shape)
        starts = np.arange(0, weights.size + 1, n_neighbors)
        shape = len(weights), len(bank)
        return csr_array((entries.ravel(), positions.ravel(), starts), shape=shape)

    def _find_heaviest(self, X, k) -> tuple[NeighborBank, np.ndarray, np.ndarray]:
        """Find weights and positions (n_queries, k) of the heaviest neighbours in the bank."""
        fitted, evaluation = self._evaluate(X)
        check_n_neighbors(k, len(fitted.bank_) - (X is None))
        weights, positions, _ = evaluation.heaviest(k)
        return fitted.bank_, weights.cpu().numpy(), positions.cpu().numpy()

    def _explain(self, X, n_neighbors) -> Explanation:
        fitted, evaluation = self._evaluate(X)
        bank = fitted.bank_
        check_n_neighbors(n_neighbors, len(bank) - (X is None))
        found = Explanation.of(evaluation, n_neighbors)
        queries = bank.names_of(slice(None)) if X is None else labels_of(X)
        return replace(
            found,
            names=bank.names_of(found.positions),
            queries=found.queries if queries is None else queries,
            others=free_name(OTHERS, set() if bank.names is None else {*bank.names}),
            target_names=bank.target_names,
        )

    @property
    def target_names_(self) -> tuple[str, ...] | None:
        """What the Series or the columns of the targets are called; None if they have no names."""
        return self.bank_.target_names

    def effective_n_neighbors(self, X=None):
        """Effective number of neighbours of each query, ``1 / sum(weight ** 2)``.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries,)
            k, if k neighbours weigh the same and the others nothing; from 1 to all rows. A row
            is one neighbour, whatever its sample weight.
        """
        return self._evaluate(X)[1].effective_sizes().cpu().numpy()

    def n_nonzero_weights(self, X=None):
        """Number of rows with a weight above 0 in the prediction of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries,)
            How many rows have a weight above 0 in the mean of the networks: the entries of
            :meth:`neighbor_weights`. Of weightings that never end, such as 'softmax', all rows but
            those whose weight is no more than rounding.
        """
        return self._evaluate(X)[1].support_sizes().cpu().numpy()

    def soft_n_neighbors(self, X=None):
        """Size of the neighbourhood that SoftStep learned for each query: its k.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries,)
            Sum of the step, from 0 (rejected) to 1, over the bank's rows, whatever their sample
            weights; a mean over the networks.

        Raises
        ------
        ValueError
            If the estimator has no step: ``softstep=None``.
        """
        if self.softstep is None:
            raise ValueError("soft_n_neighbors needs a softstep, got softstep=None")
        _, evaluation = self._evaluate(X)
        return evaluation.step_sums().cpu().numpy()

    def distance_to_bank(self, X=None):
        """Distance of each query to the nearest row of the bank.

        Compare it with what is usual for the bank itself,
        ``np.quantile(reg.distance_to_bank(), 0.99)``: a prediction farther out leans on rows
        that are not like it, and its distribution does not account for that.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself.

        Returns
        -------
        ndarray of shape (n_queries,)
            Euclidean distances between embeddings, those of several networks side by side.
        """
        fitted, evaluation = self._evaluate(X)
        embeddings, query = (
            fitted.network_.head.metric_part(z).cpu().numpy()
            for z in (fitted.bank_.embeddings, evaluation.query)
        )
        nearest = NearestNeighbors(n_neighbors=1).fit(embeddings)
        return nearest.kneighbors(None if X is None else query)[0][:, 0]

    def influence(self, X=None, y=None):
        """Effect of each row of the bank on the predictions of some queries.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        y : array-like of shape (n_queries,) or (n_queries, n_outputs), optional
            Their targets, only with `X`: those of the bank are known.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            A row for each of the bank, in its order: ``neighbor``, its name; ``id``; ``weight``,
            the sum of its weights over the queries; ``change``, the root mean square, over
            queries, of the change of a prediction when the row is left out; ``error``, the
            mean change of the squared error then, where targets are known: positive where the
            row helps. Several outputs add up; of classes these are the probabilities of all.

        Raises
        ------
        ValueError
            If `X` or `y` is invalid, or `y` is given without `X`.

        Notes
        -----
        In closed form, where the others share a row's weight in proportion: without row j a
        network's prediction m becomes ``m + w_j (m - y_j) / (1 - w_j)``, where y_j is adjusted.
        This holds fixed the scale of a step. With `n_neighbors` and the weightings 'softpick',
        'sparse_softmax', 'sparsemax', 'entmax' and 'preconditioned' others take a row's place: its
        queries are then predicted again without it. If k rows share a prediction, it takes k times
        as long as a prediction. For rows of weight 0 the scale of a step is
        held, too. How far adjustments fade for a query beyond their reach is held fixed always.

        Each of several similar rows has little influence, since the others would take its
        place: influences do not add up. A row leaves with all of its sample weight; queries
        count alike.
        """
        refuse_targets_alone(X, y)
        fitted, evaluation = self._evaluate(X)
        bank = fitted.bank_
        truth = bank.targets if X is None else None
        if X is not None and y is not None:
            truth = fitted._check_targets(y, len(evaluation))
        residuals = None
        if truth is not None:
            residuals = (evaluation.mean() - truth).reshape(len(evaluation), -1)
        weight, change, error = evaluation.influence(residuals)
        found = {"id": bank.ids, "weight": weight, "change": change.sqrt()}
        if truth is not None:
            found["error"] = error
        numbers = {name: tensor.cpu().numpy() for name, tensor in found.items()}
        return table({"neighbor": bank.names_of(slice(None)), **numbers})

    # -- editing -------------------------------------------------------------------------

    def _edit(
        self, prepare: Callable[[NeighborEstimator], Callable[[NeighborBank], NeighborBank]]
    ) -> tuple[NeighborBank, NeighborBank]:
        """Replace the bank, as one step; return the one before and the one after.

        Parameters
        ----------
        prepare : callable
            Takes a snapshot of the estimator, and returns what makes the new bank of the present
            one. What calls the caller's code or needs no lock is done here. It is called again
            where another thread has ended a fit, or set other targets, in the meantime.
        """
        check_is_fitted(self)
        while True:
            fitted = snapshot(self)
            change = prepare(fitted)
            with EDITING.held():
                if self._added_to == fitted._added_to:
                    before = self.bank_
                    self.bank_ = change(before)
                    return before, self.bank_

    @property
    def _added_to(self) -> tuple:
        """On what the embeddings and targets of added rows depend."""
        return self.network_, self.bank_.target_names, self.bank_.targets.shape[1:]

    def add_neighbors(self, X, y, sample_weight=None):
        """Let labelled rows take part in predictions, without training.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to add. The index of a DataFrame names them, if it has one beside row numbers
            (without one, that of `y`).
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each counts, above 0, in the unit of the weights given to fit. None: 1
            each, as a row of a fit without weights does.

        Returns
        -------
        ndarray of shape (n_samples,)
            Their ids, which no other row had or will have.

        Raises
        ------
        ValueError
            If `X`, `y` or `sample_weight` is invalid, or `X` or `y` has other columns than
            those given to fit.

        Notes
        -----
        Rows without a name are called "added <id>" if those given to fit have names, which may
        be numbers. Where these go by their row numbers, so do they, and numbers in the index
        of added rows are not names: they count the rows of another table.
        """

        def prepare(fitted):
            embeddings, names = fitted._validate_and_embed(X), Names.of(X, y)
            weights = check_sample_weight(sample_weight, len(embeddings))
            if not weights.all():  # an absent row would have a name
                row = int(weights.argmin())
                raise ValueError(
                    f"sample_weight must be above 0 for added rows, got 0.0 in row {row}"
                )
            targets = fitted._check_targets(y, len(embeddings))
            weights = fitted._weigh_added(targets, weights)
            prior = log_prior(weights, fitted.bank_.weight_unit, embeddings.device)
            rows = Neighbors(embeddings, targets, prior)
            return lambda bank: bank.add(rows, names.rows)

        before, after = self._edit(prepare)
        return after.ids[len(before) :].cpu().numpy()

    def remove_neighbors(self, *, ids=None, names=None):
        """Forget rows: neither the estimator nor its pickle holds their embedding or target.

        What training learned from them (the network's weights and the scaling) stays.

        Parameters
        ----------
        ids : int or array-like of int, optional
            Which rows, as :meth:`kneighbors` says: row numbers in the data given to fit, and
            what :meth:`add_neighbors` returned. The other rows keep theirs.
        names : label or list of labels, optional
            Their names instead, as :meth:`explain` gives them, which may be other numbers than the
            ids: hence neither goes without its keyword. If several rows have the same name,
            all are removed. A tuple is one name, of a MultiIndex.

        Returns
        -------
        self : object
            Without these rows.

        Raises
        ------
        ValueError
            If not exactly one of `ids` and `names` is given, one is unknown, or no row would be
            left. Nothing is removed then.
        """
        check_is_fitted(self)
        if (ids is None) == (names is None):
            raise ValueError("exactly one of ids and names must be given")
        asked = check_ids(ids) if names is None else _list_names(names)

        def remove(bank):
            find = bank.positions if names is None else bank.positions_of_names
            kept = np.setdiff1d(np.arange(len(bank)), find(asked))
            check_some_left("ids" if names is None else "names", len(kept), len(bank))
            return bank.keep(kept)

        self._edit(lambda _: remove)
        return self

    def set_neighbor_targets(self, y):
        """Predict something else with the same neighbours.

        Targets are no longer adjusted after that: the adjustment was learned for the targets
        that it was trained on, and says nothing of others. Predictions are ``weights @ y``.

        Parameters
        ----------
        y : array-like of shape (n_neighbors,) or (n_neighbors, n_outputs)
            A target for each row of the bank, in its order. Its names become those of the
            targets. Of a classifier, labels that fit saw: rows may change their classes, but no
            new class may come. What the rows weigh stays.

        Returns
        -------
        self : object
            With these targets, and distributions calibrated on them, each row without itself.

        Raises
        ------
        ValueError
            If `y` is invalid or has another number of rows than the bank, or a classifier's `y`
            has a class that fit did not see.
        """

        def prepare(fitted):
            values = fitted.targets_.values(y)

            def set_targets(bank):
                if len(values) != len(bank):
                    raise ValueError(
                        f"y must have the bank's {len(bank)} rows, got shape {np.shape(y)}"
                    )
                on_device = values.to(bank.targets.device)
                return fitted._calibrate(bank.with_targets(on_device, target_names_of(y)))

            return set_targets

        self._edit(prepare)
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
            With a bank of `n_neighbors` rows, which keep their ids, names, order and weights.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows.

        Notes
        -----
        The heaviest rows alone would all lie where rows are dense. Rows are chosen greedily
        for the sum over the queries of the square root of the weight that is kept, where a
        query that has a row needs the next one less.
        """

        def prepare(fitted):
            embedded = None if X is None else fitted._validate_and_embed(X)

            def compress(bank):
                check_n_neighbors(n_neighbors, len(bank))
                query = _sample(bank) if embedded is None else embedded
                evaluation = bank.evaluate(fitted.network_.head, query)
                return bank.keep(evaluation.representatives(int(n_neighbors)))

            return compress

        self._edit(prepare)
        return self

    def _check_targets(self, y, n_rows: int) -> Tensor:
        """Values of some rows' targets, with the outputs of the bank's, in their order."""
        bank = self.bank_
        values = self.targets_.values(in_order_of(bank.target_names, y))
        check_lengths(n_rows, len(values))
        if values.shape[1:] != bank.targets.shape[1:]:
            outputs = ", ".join(map(str, bank.targets.shape[1:]))
            raise ValueError(
                f"y must have the bank's shape (n, {outputs}), got {tuple(values.shape)}"
            )
        return values.to(bank.targets.device)


def _sample(bank: NeighborBank) -> Tensor:
    """Embeddings of the bank's rows; where these are many, of a random sample of them."""
    rows = np.random.RandomState(0).permutation(len(bank))
    return bank.embeddings[rows[: COMPRESSION_PAIRS // len(bank)]]


def refuse_targets_alone(X, y):
    """Refuse targets of rows that are not given: those of the bank are known."""
    if X is None and y is not None:
        raise ValueError("y must be None with X=None: the targets of the bank's rows are known")


def in_order_of(target_names, y):
    """Targets with their columns in the order of the bank's, where both have names."""
    names = target_names_of(y)
    if not (target_names and names) or names == target_names or len(names) == 1:
        return y
    if set(names) != set(target_names):
        raise ValueError(f"y must have the columns {[*target_names]}, got {[*names]}")
    return y[list(target_names)]


def _list_names(names):
    """List one name or several: a string is one, and so is a tuple."""
    several = np.iterable(names) and not isinstance(names, str | bytes | tuple)
    names = list(names) if several else [names]
    for name in names:
        if not isinstance(name, Hashable):
            raise ValueError(f"names must be labels of an index, got {name!r}")
    return names
