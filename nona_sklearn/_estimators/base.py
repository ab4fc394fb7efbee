"""The base class of the estimators: fit, queries of the bank and edits of the bank."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from .._data.tables import Names, labels_of
from .._inference.index import METRICS
from .._inference.neighbors import MaskExclusion, RuleExclusion
from .._network.network import NeighborNetwork, from_data, to_data
from .._utils.bases import BaseEstimator, TransformerMixin
from .._utils.docs import Documented
from .._utils.random import plain_torch
from .._utils.storable import UPGRADES, VERSION
from .._utils.tables import warn_of_other_order
from .._utils.threads import EDITING, replaced_when_done
from .._utils.validation import check_choice, check_flag, check_n_neighbors, is_real, table
from .._version import __version__
from ..eligibility import Eligibility
from .editing import (
    addition,
    compression,
    edit,
    forget_levels,
    removal,
    replacement_of_targets,
    validate_targets,
)
from .explanations import ATTRIBUTIONS
from .fit_warnings import warn_if_in_vain, warn_of_relations, warn_unless_converged
from .fitting import fit_bank, set_fitted, train
from .parameters import component_of
from .queries import (
    as_row,
    eligibility_of,
    embeddings_of,
    evaluate,
    fitted_snapshot,
    ids_or_names,
    number_of_neighbors,
    query_names,
    read_queries,
    refuse_targets_alone,
)
from .stability import stability_table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from .._data.sample import Embedded
    from .._inference.bank import NeighborBank
    from .._utils.validation import Table


class NeighborEstimator(TransformerMixin, BaseEstimator):
    """An estimator that trains an average of networks, and stores its embedded training rows.

    A subclass defines the parameters, the architecture and the targets.
    """

    network_: NeighborNetwork  # set by fit, as the bank is
    bank_: NeighborBank

    _scale_of_step = "similarity"  # on which a step acts that is given by its name

    _doc_link_module = Documented._doc_link_module
    _doc_link_template = Documented._doc_link_template
    _doc_link_url_param_generator = Documented._doc_link_url_param_generator

    def _architecture(self):
        """Return the input, the networks and the training that the parameters stand for."""
        raise NotImplementedError

    def _make_targets(self):
        """Return the unfitted targets, for numbers or for classes."""
        raise NotImplementedError

    def _measure(self, data):
        """Set fitted attributes that are measured on the training rows."""

    def _calibrate(self, bank):
        """Return the bank with distributions calibrated on its own rows."""
        return bank

    # -- fitting -------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        times: Any = None,
        eligibility: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        add_validation: bool = False,
    ) -> Self:
        """Train the network and store the embedded training rows as the bank.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training features. A sparse matrix of more than 300 columns is reduced to components
            of a truncated SVD. Queries may be sparse or dense in any case.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        groups : array-like of shape (n_samples,) or str, default=None
            Rows that belong together, such as moments of one simulation or sentences of one
            text, when predictions are for new groups; or the name of a column of `X`, which
            stays a feature. In training no row is a neighbour of its own group, and a group is
            all training or all validation. None: every row is a group by itself; with `places` of
            the table encoder, spatial blocks are held out as groups are.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the losses and as a neighbour. A row of weight 2 equals two
            rows, but takes one place among `n_neighbors`. Rows of weight 0 are ignored and do not
            join the bank; the remaining rows keep their numbers in `X`. The scaling of the
            features ignores weights. None: all weights are equal.
        times : array-like of shape (n_samples,) or str, default=None
            Times of the rows, if predictions are for later rows: numbers, dates or durations, in
            any order, or the name of a column of `X`. Validation rows are blocks of time, and a
            block is predicted from earlier rows. In training no row has neighbours that are near
            to it in time. After fit, rows of the bank (``predict(None)``) are predicted from
            earlier rows only; if the times are a column of `X`, so are all queries. None: rows
            have no order.
        eligibility : Eligibility, default=None
            Rule for the rows that may be neighbours of a row, such as ``same("district")``, of
            :mod:`nona_sklearn.eligibility`, in training, validation and leave-one-out, and of
            queries. It compares columns of `X`, which stay features. A trend is fitted to all
            rows. None: all rows may be neighbours.
        X_val : {array-like, sparse matrix} of shape (n_val, n_features), default=None
            Validation rows, on which no network is trained. `validation_fraction` then sets no
            rows aside. With `groups`, the validation rows belong to new groups; with an array of
            `times`, they are later than all rows of `X`.
        y_val : array-like of shape (n_val,) or (n_val, n_outputs), default=None
            Targets of the validation rows.
        sample_weight_val : array-like of shape (n_val,), default=None
            Weights of the validation rows. None: all weights are equal.
        add_validation : bool, default=False
            Whether the rows of `X_val` join the bank after training, as by
            :meth:`add_neighbors`. Rows of `X` that are set aside always join the bank.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter, `X`, `y`, `groups`, `sample_weight`, `times` or the validation set is
            invalid, or if training diverges.

        Notes
        -----
        A fit that fails or is interrupted leaves the estimator as it was before the call. Until
        the fit ends, concurrent threads get the results of the earlier fit.

        With `times`, the earliest rows have no neighbours: a regressor predicts NaN, and for a
        classifier all classes are equally probable. :meth:`score` leaves such rows out. With
        `groups` as well, neighbours in training and validation are neither later nor of the same
        group; in ``predict(None)``, earlier rows of the same group are neighbours.

        Examples
        --------
        The rows are areas and prices of five flats. The fourth flat has a weight of 3, so the
        prediction for 84 square metres is (400 + 3 * 450) / 4:

        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y, sample_weight=[1, 1, 1, 3, 1]).predict([[84]]).round(1)
        array([437.5])
        """
        with replaced_when_done(self, EDITING.held()) as fitted, plain_torch():
            check_flag("add_validation", add_validation)
            training = train(
                fitted,
                X,
                y,
                groups=groups,
                sample_weight=sample_weight,
                times=times,
                eligibility=eligibility,
                X_val=X_val,
                y_val=y_val,
                sample_weight_val=sample_weight_val,
                add_validation=add_validation,
            )
            network, fitted.bank_ = fit_bank(fitted, training)
            set_fitted(fitted, training, network)
            fitted._measure(training.data)
            if (validation := training.validation) is not None and validation.joins:
                add = addition(fitted, validation.X, validation.y, validation.sample_weight)
                fitted.bank_ = add(fitted.bank_)
            warn_unless_converged(training)
            warn_if_in_vain(fitted, training)
            if training.splits_at_random:
                warn_of_relations(fitted, X, training)
        return self

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn's estimators do.

        A nested name, such as ``training__batch_size``, makes the object where it is None; of a
        `softstep` or `loss`, also where it is a name. If an error is raised, all parameters are
        as before.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
            The estimator.

        Examples
        --------
        >>> from nona_sklearn import NONARegressor
        >>> NONARegressor().set_params(training__max_time=60)
        NONARegressor(training=TrainingOptions(max_time=60))
        """
        before = self.get_params()
        try:
            for key in [key for key in params if key.partition("__")[0] in before]:
                name, is_nested, _ = key.partition("__")
                value = params.get(name, before[name])
                if is_nested and not hasattr(value, "set_params"):
                    params[name] = component_of(name, value, self._scale_of_step)
                    if not hasattr(params[name], "set_params"):
                        raise ValueError(
                            f"{key} needs an object with parameters as {name}, got {value!r:.100}"
                        )
            return super().set_params(**params)
        except Exception:
            super().set_params(**before)
            raise

    @property
    def n_estimators_(self) -> int:
        """Number of networks."""
        return len({epoch["estimator"] for epoch in self.history_})

    @property
    def n_neighbors_(self) -> int | None:
        """Largest number of rows behind a prediction; None: all rows."""
        fitted = fitted_snapshot(self)
        return fitted.network_.head.most_nonzero(len(fitted.bank_))

    @property
    def best_loss_(self) -> float:
        """Validation loss of the epoch that was kept, or training loss without validation rows.

        The loss is averaged over the networks.
        """
        losses = [e.get("valid_loss", e["train_loss"]) for e in self.history_ if "kept" in e]
        return float(np.mean(losses)) if losses else float("nan")  # of a file of an early version

    # -- embedding -----------------------------------------------------------------------

    def embed(self, X: Any) -> Embedded:
        """Embed queries once for several methods.

        The result replaces `X` in methods such as :meth:`predict`, :meth:`kneighbors` and
        :meth:`explain`, which saves time with a large feature extractor.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        Embedded
            The embedded queries, which this estimator accepts until it is fitted again.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> queries = knn.fit(X, y).embed([[84], [110]])
        >>> knn.predict(queries).round()
        array([425., 525.])
        >>> knn.kneighbors(queries, 2, return_distance=False)
        array([[2, 3],
               [4, 3]])
        """
        fitted = fitted_snapshot(self)
        X = as_row(fitted, X)
        queries = read_queries(fitted, X, with_added=True)
        return replace(queries, row_labels=labels_of(X))

    def transform(self, X: Any) -> np.ndarray:
        """Embed rows in the space in which they are compared.

        In the given space (``SoftStepKNeighborsRegressor`` with ``hidden_layer_sizes=None``)
        the embedding is the features; for 'l2' and 'l1' their training means are subtracted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to embed.

        Returns
        -------
        ndarray of shape (n_samples, n_embedding_dimensions)
            Embeddings, float32.

        Examples
        --------
        In the given space, embeddings are the features less their mean, here 80:

        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).transform([[84], [50]])
        array([[  4.],
               [-30.]], dtype=float32)
        """
        fitted = fitted_snapshot(self)
        return fitted.network_.head.metric_part(embeddings_of(fitted, X)).cpu().numpy()

    # -- queries of the bank -------------------------------------------------------------

    def neighbor_weights(
        self, X: Any = None, *, tolerance: float = 0.0, eligibility: Any = None
    ) -> csr_array:
        """Compute the weight of each row of the bank in the prediction of each query.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, by leave-one-out.
        tolerance : float, default=0.0
            Weights up to this value are set to 0, and the remaining weights are scaled to sum
            to 1.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        sparse CSR array of shape (n_queries, n_neighbors)
            Weights; a row sums to 1, or to 0 without a neighbour. Column j is the j-th row of the
            bank. The product with the bank's targets is the prediction if ``tolerance=0`` and
            ``adjust=False``, or for SoftStep k-NN ``trend=None``, and for classes if no level is
            new.

        Raises
        ------
        ValueError
            If `tolerance` is negative, or leaves a query without neighbours.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).neighbor_weights([[84], [110]]).toarray().round(2)
        array([[0. , 0. , 0.5, 0.5, 0. ],
               [0. , 0. , 0. , 0.5, 0.5]])
        """
        if not is_real(tolerance, 0, math.inf):
            raise ValueError(f"tolerance must not be negative, got {tolerance!r}")
        _, evaluation = evaluate(self, X, eligibility=eligibility)
        weights = evaluation.sparse_weights(tolerance)
        empty = torch.from_numpy(np.diff(weights.indptr) == 0)
        if (isolated := evaluation.isolated) is not None:
            empty &= ~isolated.cpu()
        if empty.any():
            raise ValueError(f"tolerance={tolerance!r} leaves a query without neighbours")
        return weights

    def heaviest_neighbors(
        self,
        X: Any = None,
        n_neighbors: int = 5,
        *,
        return_names: bool = False,
        eligibility: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the neighbours with the largest weights, in descending order.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, by leave-one-out.
        n_neighbors : int, default=5
            Number of neighbours of a query.
        return_names : bool, default=False
            Whether to return names instead of ids.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        weights : ndarray of shape (n_queries, n_neighbors)
            Weights of the neighbours in the prediction.
        ids : ndarray of shape (n_queries, n_neighbors)
            Ids of the neighbours, as in :meth:`kneighbors`; or their names.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows of the bank (one less with
            ``X=None``).

        See Also
        --------
        kneighbors : The nearest rows, and their distances.
        neighbor_weights : All weights, as a sparse array.
        explain : The same rows, with their targets and features.

        Notes
        -----
        If more neighbours are requested than have weight, the next nearest rows follow, with a
        weight of 0. With several networks, rows without weight are ordered by their best rank
        over the networks.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> weights, ids = knn.fit(X, y).heaviest_neighbors([[84]], n_neighbors=3)
        >>> weights.round(2), ids
        (array([[0.5, 0.5, 0. ]]), array([[2, 3, 1]]))
        """
        check_flag("return_names", return_names)
        fitted, evaluation = evaluate(self, X, eligibility=eligibility)
        check_n_neighbors(n_neighbors, len(fitted.bank_) - (X is None))
        weights, positions, _ = evaluation.with_nearest(n_neighbors).heaviest(n_neighbors)
        earlier = evaluation.only_admitted(positions).cpu().numpy()
        return weights.cpu().numpy(), ids_or_names(fitted.bank_, earlier, return_names)

    @property
    def effective_metric_(self) -> str:
        """The metric of :meth:`kneighbors`: 'euclidean', 'manhattan' or 'cosine'."""
        fitted = fitted_snapshot(self)
        return METRICS[fitted.bank_.evaluate(fitted.network_.head).similarity_of_distance]

    @overload
    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        return_distance: Literal[True] = True,
        *,
        return_names: bool = False,
        eligibility: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        *,
        return_distance: Literal[False],
        return_names: bool = False,
        eligibility: Any = None,
    ) -> np.ndarray: ...

    @overload
    def kneighbors(
        self,
        X: Any,
        n_neighbors: int | None,
        return_distance: Literal[False],
        *,
        return_names: bool = False,
        eligibility: Any = None,
    ) -> np.ndarray: ...

    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
        *,
        return_names: bool = False,
        eligibility: Any = None,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Find the nearest rows in the learned space, in the order of their distances.

        Distances are computed between the embeddings that :meth:`transform` returns. They are
        Euclidean; with ``similarity="l1"`` Manhattan; and with 'cosine' cosine distances. Weights
        do not depend on distances alone: see :meth:`heaviest_neighbors`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. A row of the bank is its own nearest neighbour. None: the bank's rows;
            no row is then its own neighbour.
        n_neighbors : int, default=None
            Number of neighbours of a query. None: the estimator's `n_neighbors`, or 5 if that is
            no number.
        return_distance : bool, default=True
            Whether to return the distances.
        return_names : bool, default=False
            Whether to return names instead of ids.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Distances, smallest first. Only with ``return_distance=True``.
        ids : ndarray of shape (n_queries, n_neighbors)
            Ids of the neighbours: row numbers in the data given to fit, and the results of
            :meth:`add_neighbors`. The smallest id is first among equally near rows. With
            ``return_names=True``, names of the neighbours, as in the table of :meth:`explain`.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows of the bank (one less with
            ``X=None``).

        See Also
        --------
        heaviest_neighbors : The rows with the largest weights in the prediction.

        Notes
        -----
        With several networks, the distance is computed from their concatenated embeddings. Where
        fewer than `n_neighbors` rows are earlier than a query with times, the distance is
        infinite, and the id is -1 or the name None.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).kneighbors([[84]], n_neighbors=3)
        (array([[ 4.,  6., 24.]]), array([[2, 3, 1]]))
        """
        check_flag("return_distance", return_distance)
        check_flag("return_names", return_names)
        k = number_of_neighbors(self, n_neighbors)
        fitted, evaluation = evaluate(self, X, eligibility=eligibility)
        check_n_neighbors(k, len(fitted.bank_) - (X is None))
        distances, positions = evaluation.nearest(k)
        labels = ids_or_names(fitted.bank_, positions.cpu().numpy(), return_names)
        return (distances.cpu().numpy(), labels) if return_distance else labels

    @property
    def target_names_(self) -> tuple[str, ...] | None:
        """Names of the targets: the name of the Series or of the DataFrame's columns; or None."""
        return self.bank_.target_names

    def neighborhood(self, X: Any = None, *, eligibility: Any = None) -> Table:
        """Describe the neighbourhood of each query: its distance and its size.

        The neighbours of a query that is farther away than stored rows are from their neighbours
        are not similar, and its prediction interval may be too narrow. Where `applicability` is
        less than 0.05, for example, abstain: so are 5 % of the queries that are like the rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, by leave-one-out.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            One line per query, with the columns

            - ``query``: its name in the index of a DataFrame, else its number,
            - ``distance`` to the nearest row of the bank, as in :meth:`kneighbors`, without unit;
              infinite where no row is earlier than a query with times,
            - ``applicability``: the share of stored rows, and the query, that are at least as far
              from their nearest row, a p-value. Stored rows, 1,000 at most, are compared by
              leave-one-out, without their groups, under the rule of the queries. With a mask, or
              none, the rule is that of fit,
            - ``n_nonzero_weights``: the number of rows with a weight above 0,
            - ``effective_n_neighbors``, ``1 / sum(weight ** 2)``: k if k neighbours have equal
              weights and the remaining rows have no weight,
            - ``n_eligible``, with a rule or a mask: the number of rows that are eligible, by the
              last rule where these are too few,
            - ``rule``, with a rule: the one of its alternatives that holds, in words; missing
              where too few rows are eligible,
            - ``soft_n_neighbors``, where weights have a `softstep`, so that ``similarity_`` is
              not 'features': the sum of the step, from 0 (rejected) to 1, over the bank's rows,
              averaged over the networks. Sample weights do not count.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> near = knn.fit(X, y).neighborhood([[84], [200]])
        >>> near[["distance", "applicability", "n_nonzero_weights", "effective_n_neighbors"]]
           distance  applicability  n_nonzero_weights  effective_n_neighbors
        0       4.0       1.000000                  2                    2.0
        1      80.0       0.166667                  2                    2.0
        """
        fitted, evaluation = evaluate(self, X, eligibility=eligibility)
        bank, distances = fitted.bank_, evaluation.nearest(1)[0][:, 0]
        rule = eligibility if isinstance(eligibility, Eligibility) else None
        as_far = bank.share_as_far(
            evaluation.head, distances, eligibility_of(bank, rule, len(evaluation))
        )
        columns = {
            "query": query_names(fitted, X, len(evaluation)),
            "distance": distances.cpu().numpy(),
            "applicability": as_far.cpu().numpy(),
            "n_nonzero_weights": evaluation.support_sizes().cpu().numpy(),
            "effective_n_neighbors": evaluation.effective_sizes().cpu().numpy(),
        }
        if isinstance(evaluation.exclusion, RuleExclusion | MaskExclusion):
            columns |= evaluation.exclusion.described()
        if evaluation.one_head.step is not None:
            columns["soft_n_neighbors"] = evaluation.step_sums().cpu().numpy()
        return table(columns)

    def attribute(
        self,
        X: Any = None,
        features: Any = None,
        *,
        of: str = "adjustments",
        n_neighbors: int | None = None,
        eligibility: Any = None,
    ) -> Table:
        """Attribute adjustments, distances or predictions to the columns of a table.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, by leave-one-out.
        features : array-like of shape (n_samples, n_features), optional
            The rows given to fit, followed by the rows of `add_neighbors`, as for
            :meth:`explain`, since the bank does not store features. Needed unless
            ``of="predictions"``.
        of : {'adjustments', 'distances', 'predictions'}, default='adjustments'
            - 'adjustments': which differences between neighbour and query move the neighbour's
              target, as an appraiser's adjustments, item by item. It needs `features`, and
              neighbours that are adjusted, by a trend or by ``adjust=True``; a classifier needs
              ``similarity_ == "features"``.
            - 'distances': which differences make the rows dissimilar. It needs `features`.
            - 'predictions': how much each column adds to the mean of all predictions. It needs
              ``similarity_ == "features"``, and no `features`.

            All need an estimator that was fitted to the columns of a table: with neither a wide
            sparse matrix nor a `feature_extractor`.
        n_neighbors : int, optional
            Largest number of neighbours of a query, with the largest weights. None: all rows that
            have weight. Unused with ``of="predictions"``.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            - 'adjustments': one line per query and neighbour, with ``query``, ``neighbor``,
              ``weight`` and ``target``, as in :meth:`explain`; one column per feature, its part;
              ``interplay``, the joint part of several features; ``other``, the part of no feature,
              due to shrinkage, to bounds, and to values at training rows that are computed without
              the row itself; and ``adjusted_target``, the sum from ``target`` on. Parts are in the
              units of `y`. For classes they lead from ``neighbor_log_odds``, of the row without
              itself, to ``query_log_odds``.
            - 'distances': one line per query and neighbour, with ``query``, ``neighbor`` and
              ``weight``, and one column per feature: its share of the squared distance, averaged
              over the networks. Shares sum to 1, or are all 0 for equal rows. The share of a
              difference that offsets a second difference is negative.
            - 'predictions': one line per query, with ``query``; ``mean``; one column per feature,
              its amount; ``interplay``, with the residuals or votes of neighbours; and the sum,
              ``prediction``, or ``log_odds`` for classes. :class:`EffectDisplay` draws the
              amounts of one column.

            Names end in the output if there are several, and in the class if there are more than
            two. Log odds compare two classes; of more classes each has a centred log-ratio, the
            logarithm of its probability less the mean of the logarithms. A feature is renamed by
            an apostrophe if its name is that of a result, as in :meth:`explain`.

        Raises
        ------
        ValueError
            If `features` lacks a row of the bank; if neighbours are not adjusted; if the estimator
            was fitted to a wide sparse matrix or with a feature extractor; or, for 'predictions'
            and for adjustments of classes, if ``similarity_`` is not 'features'.

        See Also
        --------
        explain : The rows behind each prediction.

        Notes
        -----
        With ``similarity="features"``, a difference has one amount, the same for all rows. The
        amounts come from the sum of functions of single columns that is nearest to the
        predictions of the training rows. Otherwise parts are integrated gradients [1]_ of the
        networks' own estimate, or of the squared distance in the learned space, along the line
        from neighbour to query. A model as `trend` has no gradients: its part is the change of
        its prediction when the cells of the neighbour are exchanged one by one for the cells of
        the query, averaged over two orders of the columns.

        References
        ----------
        .. [1] Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017, equation 1.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
        >>> X, y, query = X[["bmi", "s5"]][:100], y[:100], X[["bmi", "s5"]][432:433]
        >>> knn = SoftStepKNeighborsRegressor(trend="additive", max_iter=50, random_state=0)
        >>> found = knn.fit(X, y).attribute(query, X, n_neighbors=2)
        >>> found[["target", "bmi", "s5", "other", "adjusted_target"]].round()
           target  bmi    s5  other  adjusted_target
        0   164.0  3.0   8.0   12.0            187.0
        1    85.0 -5.0  80.0   13.0            174.0
        """
        check_choice("of", of, ATTRIBUTIONS)
        return ATTRIBUTIONS[of](self, X, features, n_neighbors, eligibility)

    def influence(self, X: Any = None, y: Any = None, *, eligibility: Any = None) -> Table:
        """Measure the effect of each row of the bank on the predictions of queries.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, by leave-one-out.
        y : array-like of shape (n_queries,) or (n_queries, n_outputs), optional
            Targets of the queries, only with `X`. The targets of the bank are known.
        eligibility : Eligibility or bool array of shape (n_queries, n_neighbors), default=None
            Rule or mask of the rows that may be neighbours, in place of the rule given to fit;
            see :mod:`nona_sklearn.eligibility`. None: the rule given to fit, if any.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            One line per row of the bank, in its order, with the columns

            - ``neighbor``, its name, and ``id``,
            - ``weight``, the sum of its weights over the queries,
            - ``change``, the root mean square, over queries, of the change of a prediction when
              the row is left out, in the units of `y`,
            - ``error``, if targets are known: the mean change of the squared error, in squared
              units of `y`. It is positive if the row reduces the error.

            ``error`` is a sum over the outputs, and so are the squares of ``change``. For classes
            the outputs are the probabilities.

        Raises
        ------
        ValueError
            If `X` or `y` is invalid, or `y` is given without `X`.

        Notes
        -----
        Without row j, a network's prediction m becomes ``m + w_j (m - y_j) / (1 - w_j)``, where
        y_j is the adjusted target, if the remaining rows share its weight in proportion. The
        scale of a step is kept fixed. Where all rows have weight, the fading of adjustments far
        from the bank is kept fixed as well. With `n_neighbors` and the weightings 'softpick',
        'sparse_softmax', 'sparsemax', 'entmax' and 'preconditioned', the remaining rows replace
        the row, so its queries are predicted again without it. The time grows with the number k of
        contributing rows, up to k predictions.

        ``trend='kernel'`` is a function of all rows. Its values at the queries and their
        neighbours change by a closed form, as :meth:`remove_neighbors` changes them, so that rows
        without weight have influence, too. With ``similarity="features"``, the values of the
        networks change as well, of more than 65,536 rows without the kernel's change where the
        networks do not predict from the row. The time is then proportional to the number of
        queries times k times the number of rows. The calibration of classes is kept. The
        landmarks of more than 3,000 rows are kept as well, although a removal chooses new
        landmarks. With times, and
        for the remaining trends, the trend is kept fixed: its functions would have to be fitted
        anew.

        A row has little influence if similar rows can replace it. Influences do not add up. A row
        is left out with all of its sample weight; queries have equal weights.

        Examples
        --------
        The prediction for 84 square metres is 425. Without the flat of 80 square metres it would
        be 375. It would change by 50, and its squared error for a true price of 410 would grow by
        1000, from 15 ** 2 to 35 ** 2:

        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).influence([[84]], [410]).round(1)
           neighbor  id  weight  change   error
        0         0   0     0.0     0.0     0.0
        1         1   1     0.0     0.0     0.0
        2         2   2     0.5    50.0  1000.0
        3         3   3     0.5    75.0  3375.0
        4         4   4     0.0     0.0     0.0
        """
        refuse_targets_alone(X, y)
        warn_of_other_order(X=X, y=y)
        fitted, evaluation = evaluate(self, X, eligibility=eligibility)
        bank = fitted.bank_
        truth = bank.targets if X is None else None
        if X is not None and y is not None:
            truth = validate_targets(fitted, y, len(evaluation))
        evaluation, truth = evaluation.without_isolated(truth)
        residuals = None
        if truth is not None:
            n_columns = bank.neighbors.columns.shape[1]
            residuals = (evaluation.mean() - truth).reshape(len(evaluation), n_columns)
        weight, change, error = evaluation.influence(residuals)
        columns = {"id": bank.ids, "weight": weight, "change": change.sqrt()}
        if truth is not None:
            columns["error"] = error
        arrays = {name: column.cpu().numpy() for name, column in columns.items()}
        return table({"neighbor": bank.names_of(slice(None)), **arrays})

    def neighbor_stability(
        self,
        X: Any = None,
        *,
        n_refits: int = 10,
        subsample: float = 0.9,
        n_neighbors: int = 10,
        random_state: Any = 0,
    ) -> Table:
        """Measure how often the heaviest neighbours are found again by fits to random rows.

        The method is stability selection [1]_ of neighbours. With ``similarity="features"``, a
        refit weights the features by a random part of the bank's rows, and finds the neighbours of
        a query among the same part. No network is trained, and the encoding of the table stays.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, by leave-one-out.
        n_refits : int, default=10
            Number of refits, at least 2.
        subsample : float, default=0.9
            Share of the rows in a refit, between 0 and 1; with `groups`, share of the groups.
        n_neighbors : int, default=10
            Largest number of neighbours of a query. The neighbours with the largest weights are
            listed.
        random_state : int, RandomState instance or None, default=0
            Seed of the subsamples.

        Returns
        -------
        DataFrame, or :class:`~sklearn.utils.Bunch` of arrays where pandas is not installed
            One line per query and neighbour, with the columns ``query``, ``neighbor`` and
            ``weight``, and

            - ``n_refits``, the number of refits that contain the neighbour,
            - ``selection_frequency``, the share of these refits in which the neighbour is again
              among the `n_neighbors` heaviest of the query; NaN if ``n_refits`` is 0.

        Raises
        ------
        ValueError
            If a parameter is invalid, a refit has too few rows for `n_neighbors` or `subsample`,
            or the estimator has one network with a learned space.

        See Also
        --------
        NeighborsReport : The report of one prediction, with these frequencies by `n_refits`.

        Notes
        -----
        In a learned space, a refit would have to train. Instead, the networks of an average are
        compared: ``n_refits`` is the number of networks, and ``selection_frequency`` the share of
        networks whose own heaviest neighbours contain the row. The parameters of refits have no
        effect.

        References
        ----------
        .. [1] Meinshausen and Bühlmann, "Stability Selection", 2010, Journal of the Royal
           Statistical Society B 72.

        Examples
        --------
        The target is ten times the first of two features. Every refit finds the rows that are
        nearest in the first feature, if it contains them:

        >>> import numpy as np
        >>> from nona_sklearn import NONARegressor
        >>> X = np.random.default_rng(0).uniform(size=(100, 2))
        >>> reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0)
        >>> found = reg.fit(X, 10 * X[:, 0]).neighbor_stability([[0.5, 0.5]], n_neighbors=3)
        >>> found[["neighbor", "n_refits", "selection_frequency"]].round(1)
           neighbor  n_refits  selection_frequency
        0        37         9                  1.0
        1        17         9                  1.0
        2        50        10                  1.0
        """
        return stability_table(self, X, n_refits, subsample, n_neighbors, random_state)

    # -- edits of the bank ---------------------------------------------------------------

    def add_neighbors(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        times: Any = None,
        groups: Any = None,
        max_rows: int | None = None,
        max_age: Any = None,
    ) -> np.ndarray:
        """Add labelled rows to the bank, without training.

        With ``similarity='features'``, what the networks predict at an added row does not depend
        on the rows of later calls, until a row is removed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to add. The index of `X` or of `y` names the rows, unless it is a range of
            numbers.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets of the added rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, above 0, in the unit of the weights given to fit. None: 1.
        times : array-like of shape (n_samples,) or str, default=None
            Times of the rows, if fit was given times. None if the times are a column of `X`.
        groups : array-like of shape (n_samples,) or str, default=None
            Groups of the rows, or the name of a column of `X`, if fit was given groups. Groups
            may be known from fit or new. None: every row is a group by itself.
        max_rows : int, default=None
            Largest number of rows of the bank after the call; the oldest rows are removed. It
            needs times. None: no limit.
        max_age : float or timedelta, default=None
            Largest age of a row relative to the latest one, in the unit of the times; for dates a
            timedelta or seconds. Older rows are removed. None: no limit.

        Returns
        -------
        ndarray of shape (n_samples,)
            Ids of the added rows. An id is never used for a second row.

        Raises
        ------
        ValueError
            If a parameter is invalid; if the columns of `X` or `y` are not the columns of fit; if
            a name is already taken, while no rows of the bank share a name; if times are missing;
            or if times or groups are given, but were not given to fit.

        Notes
        -----
        If the rows given to fit have names, added rows without a name are named "added <id>". If
        they have none, added rows are named by their ids, and numbers in their index are ignored.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).add_neighbors([[84]], [430])
        array([5])
        >>> knn.predict([[84]]).round()
        array([415.])
        """
        warn_of_other_order(X=X, y=y, sample_weight=sample_weight, times=times, groups=groups)
        options = sample_weight, times, groups, max_rows, max_age
        before, after = edit(self, lambda fitted: addition(fitted, X, y, *options))
        if max_rows is not None or max_age is not None:
            forget_levels(self, before)
        return np.arange(int(before.next_id), int(after.next_id))

    def remove_neighbors(self, *, ids: Any = None, names: Any = None) -> Self:
        """Remove rows from the bank, so that no later prediction, pickle or file contains them.

        The embeddings, targets and names of the rows are removed. The levels of categories that
        no remaining row has are removed as well, and are then encoded as unknown levels. The
        results of training stay: the networks' weights, scaling (with the median of a column,
        which may be the value of a row), the shares and mean targets of levels, a model that is
        the trend, calibration, the vocabulary of texts and the labels of classes. To remove the
        effect of a row on these results, fit anew without it.

        Parameters
        ----------
        ids : int or array-like of int, optional
            Ids of the rows, as from :meth:`kneighbors`: row numbers in the data given to fit, and
            the results of :meth:`add_neighbors`. The remaining rows keep their ids.
        names : label or list of labels, optional
            Names of the rows instead, as in the table of :meth:`explain`. If several rows have the
            same name, all are removed. A tuple is one name, of a MultiIndex. Names may be
            numbers that differ from the ids, so `ids` and `names` are keywords.

        Returns
        -------
        self : object
            The estimator without the removed rows.

        Raises
        ------
        ValueError
            If not exactly one of `ids` and `names` is given, an id or name is unknown, or no row
            would be left. No row is removed then.

        Examples
        --------
        >>> import pandas as pd
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X = pd.DataFrame({"area": [50, 60, 80, 90, 120]}, index=["A", "B", "C", "D", "E"])
        >>> y = pd.Series([250, 300, 400, 450, 600], X.index, name="price")
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).remove_neighbors(names="C").bank_.ids.tolist()
        [0, 1, 3, 4]
        """
        check_is_fitted(self)
        change = removal(ids, names)
        before, _ = edit(self, lambda _: change)
        forget_levels(self, before)
        return self

    def set_neighbor_targets(self, y: Any) -> Self:
        """Replace the targets of the bank, to predict a new target with the same neighbours.

        The new targets are not adjusted, since the adjustment was trained for the targets of fit.
        Predictions are ``weights @ y``; for a level that training has not seen, probabilities
        are nearer to the frequencies of the new labels.

        Parameters
        ----------
        y : array-like of shape (n_neighbors,) or (n_neighbors, n_outputs)
            One target per row of the bank, in its order. The names of `y` become the names of
            the targets. A classifier accepts the classes of fit only. The weights of the rows do
            not change.

        Returns
        -------
        self : object
            The estimator with the new targets, and with distributions calibrated on them by
            leave-one-out.

        Raises
        ------
        ValueError
            If `y` is invalid, the numbers of rows of `y` and of the bank differ, or a
            classifier's `y` has a class that fit did not have.

        Examples
        --------
        The same neighbours now predict the number of rooms:

        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).set_neighbor_targets([1, 2, 3, 3, 4]).predict([[84], [110]]).round(1)
        array([3. , 3.5])
        """
        check_is_fitted(self)
        warn_of_other_order(bank=Names(self.bank_.names), y=y)
        edit(self, lambda fitted: replacement_of_targets(fitted, y))
        return self

    def compress(self, n_neighbors: int, X: Any = None) -> Self:
        """Reduce the bank to the rows that matter most for its predictions.

        Levels of categories that only removed rows have stay known, since queries may have them.
        A kernel as `trend` keeps all rows that it is fitted to, also in files. Where a file must
        not contain a row, use :meth:`remove_neighbors` first.

        Parameters
        ----------
        n_neighbors : int
            Number of rows to keep.
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            Queries whose predictions should change little. None: the bank's rows, or a random
            sample of a large bank.

        Returns
        -------
        self : object
            The estimator with a bank of `n_neighbors` rows, which keep their ids, names, order
            and weights.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows.

        Notes
        -----
        Rows are chosen greedily to maximise the sum over the queries of the square root of the
        weight that is kept, so that every query keeps some of its neighbours. The rows with the
        largest weights alone would all lie where rows are dense.

        Examples
        --------
        >>> from nona_sklearn import SoftStepKNeighborsRegressor
        >>> X, y = [[50], [60], [80], [90], [120]], [250, 300, 400, 450, 600]
        >>> knn = SoftStepKNeighborsRegressor(2, weighting="uniform", learn_feature_weights=False)
        >>> knn.fit(X, y).compress(3, X=[[84], [82]]).bank_.ids.tolist()
        [0, 2, 3]
        """
        edit(self, lambda fitted: compression(fitted, n_neighbors, X))
        return self

    # -- scikit-learn --------------------------------------------------------------------

    get_feature_names_out = ClassNamePrefixFeaturesOutMixin.get_feature_names_out

    @property
    def _n_features_out(self):
        return self.network_.head.metric_part(self.bank_.neighbors.rows.memory.tensor).shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.multi_output = True
        # Only a table has gaps, or is sparse.
        is_table = getattr(self, "feature_extractor", None) is None
        tags.input_tags.allow_nan = tags.input_tags.sparse = is_table
        return tags

    def __getstate__(self):
        """Return the state, with the network as arrays on the CPU, which load without a GPU."""
        state = super().__getstate__()
        if "network_" in state:
            state = state | {"network_": to_data(state["network_"])}
        return state | {VERSION: __version__}

    def __setstate__(self, state):
        """Rebuild the network from its arrays, and warn if the versions of the package differ.

        Parameters of an earlier version are upgraded, and parameters that have come since have
        their defaults.
        """
        version = state.get(VERSION, __version__)  # a file has no version
        if version != __version__:
            warnings.warn(
                f"{type(self).__name__} was pickled by nona_sklearn {version}, and is read by "
                f"{__version__}: results may differ or fail. Use nona_sklearn.save for files that "
                "later versions read",
                UserWarning,
                stacklevel=2,
            )
        upgrade = UPGRADES.get(type(self), dict)
        state = upgrade({name: value for name, value in state.items() if name != VERSION})
        state = type(self)().get_params(deep=False) | state
        if "network_" in state:
            state = state | {"network_": from_data(state["network_"])}
        super().__setstate__(state)
