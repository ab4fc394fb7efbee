"""What both estimators share: validation, scaling, seeds and devices, and every verb."""

import copy
import threading
from abc import ABCMeta, abstractmethod
from contextlib import contextmanager
from numbers import Integral, Real

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    MultiOutputMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch, check_array, check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from ._bank import NeighborBank
from ._distribution import DistributionMixin, calibrate_on_held_out
from ._editing import EditableBankMixin
from ._network import Embedded, NeighborNetwork, average
from ._scaler import SmoothClipScaler
from ._training import NEIGHBOR_POOLS, train_network
from .embedding import ACTIVATIONS, MLPEmbedding
from .similarity import SIMILARITIES

_SEEDING = threading.RLock()  # torch's global generator serves one fit at a time


class BaseNeighborRegressor(
    DistributionMixin,
    EditableBankMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    MultiOutputMixin,
    RegressorMixin,
    BaseEstimator,
    metaclass=ABCMeta,
):
    """Base of the neighbour regressors: train a network, store its bank, ask the bank."""

    _parameter_constraints: dict = {
        "similarity": [StrOptions(set(SIMILARITIES))],
        "softstep_params": [StrOptions({"global", "pointwise"})],
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "neighbor_pool": [StrOptions(set(NEIGHBOR_POOLS))],
        "pool_size": [Interval(Integral, 2, None, closed="left")],
        "batch_size": [Interval(Integral, 2, None, closed="left"), StrOptions({"auto"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "device": [str, torch.device],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    @abstractmethod
    def _make_network(self, X: torch.Tensor) -> NeighborNetwork:
        """Build the untrained network for training rows `X`, shape (n, n_features)."""

    def _make_mlp(self, n_features: int, **kwargs) -> MLPEmbedding:
        """Build the learned embedding from the parameters that both estimators have."""
        sizes = self.hidden_layer_sizes
        if not all(isinstance(size, Integral) and size > 0 for size in sizes):
            raise ValueError(f"hidden_layer_sizes must be positive integers, got {sizes!r}")
        return MLPEmbedding(n_features, self.embedding_dim, sizes, self.activation, **kwargs)

    def _make_scaler(self):
        """Build what scales the features before the embedding; None leaves them alone."""
        return SmoothClipScaler()

    # -- fitting -------------------------------------------------------------------------

    def fit(self, X, y, groups=None):
        """Train the network and store the embedded training rows as the bank.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training features.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        groups : array-like of shape (n_samples,), default=None
            Rows that belong together, such as moments of one simulation or sentences of one
            text, when predictions are for new groups. In training no row is a neighbour of its
            own group, and a group is all training or all validation. None: each row by itself.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter, `X` or `y` is invalid, or if training diverges. The estimator is
            then left as it was before the call.
        """
        before = vars(self).copy()
        try:
            return self._fit(X, y, groups)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _fit(self, X, y, groups):
        self._validate_params()
        device = self._find_device()
        X, y, scaler = self._take_training_data(X, y)
        random_state = check_random_state(self.random_state)
        n_members = self._count_members(len(X))
        groups = _check_groups(groups, len(X))
        splits = self._split(len(X), groups, n_members, random_state)
        seeds = random_state.randint(2**31, size=n_members)
        y = np.array(y, dtype=np.float64)  # a copy: the caller may change y
        scaled_y = _standardize(y)

        members = self._initial_members(X, seeds)
        trained = Parallel(n_jobs=getattr(self, "n_jobs", None))(
            delayed(self._train)(member, X, scaled_y, groups, *split, int(seed), device)
            for member, split, seed in zip(members, splits, seeds, strict=True)
        )
        network = average([member for member, _ in trained])
        history = [
            {"estimator": i, **epoch} for i, (_, epochs) in enumerate(trained) for epoch in epochs
        ]

        self.network_ = network.settle()
        self.scaler_ = scaler
        self.validation_indices_ = [valid for _, valid in splits]
        self.bank_ = NeighborBank(self._embed(X), torch.as_tensor(y, device=device))
        self.calibration_ = self._calibrate(splits)
        self.history_ = history
        self.n_iter_ = len(history)
        return self

    def _take_training_data(self, X, y):
        """Validate training data: (rows for the network, targets, scaler of the features)."""
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2,
        )
        scaler = _fit_scaler(self._make_scaler(), X)
        return _to_tensor(X, scaler), y, scaler

    def _find_device(self):
        return _resolve_device(self.device)

    def _count_members(self, n_samples):
        """How many networks to train."""
        return 1

    def _calibrate(self, splits):
        return calibrate_on_held_out(self.network_.head, self.bank_, splits)

    def _initial_members(self, X, seeds):
        """Build the networks that training starts from: new ones, or the earlier fit's."""
        members = []
        for seed in seeds:
            with _local_seed(int(seed)):
                members.append(self._make_network(X))
        if self.warm_start and hasattr(self, "network_"):
            try:
                average(members).load_state_dict(self.network_.state_dict())
            except RuntimeError as error:
                raise ValueError(
                    "warm_start=True needs the number of features and the network's "
                    "parameters of the earlier fit"
                ) from error
        return members

    def _train(self, network, X, y, groups, train, valid, seed, device):
        """Train one network on standardised targets; returns it with its history."""
        return train_network(
            network,
            (X[train], y[train]),
            None if valid is None else (X[valid], y[valid]),
            groups=None if groups is None else torch.as_tensor(groups[train]),
            neighbor_pool=self._choose_pool(),
            pool_size=self.pool_size,
            batch_size=self.batch_size,
            learning_rate_init=self.learning_rate_init,
            weight_decay=self.weight_decay,
            max_iter=self.max_iter,
            n_iter_no_change=self.n_iter_no_change,
            verbose=self.verbose,
            seed=seed,
            device=device,
            **self._training_options(),
        )

    def _choose_pool(self):
        return self.neighbor_pool

    def _training_options(self):
        """Further arguments of :func:`train_network`."""
        return {}

    def _split(self, n_samples, groups, n_members, random_state):
        """Split row numbers into training and validation rows (None: no validation), n times.

        Groups stay together. None is validation twice as long as there are others.
        """
        if not self.early_stopping:
            return [(np.arange(n_samples), None)] * n_members
        units = np.arange(n_samples) if groups is None else groups
        n_units = units.max() + 1
        n_valid = max(1, round(self.validation_fraction * n_units))
        if n_units - n_valid < 2:
            raise ValueError(
                f"validation_fraction={self.validation_fraction} of "
                f"{'n_samples' if groups is None else 'n_groups'}={n_units} leaves fewer than 2 "
                f"training {'rows' if groups is None else 'groups'}; "
                "use more samples or early_stopping=False"
            )
        order = random_state.permutation(n_units)
        splits = []
        for i in range(n_members):
            turn = np.roll(order, -i * n_valid)
            rows = turn if groups is None else random_state.permutation(n_samples)
            held_out = np.isin(units[rows], turn[:n_valid])
            splits.append((rows[~held_out], rows[held_out]))
        return splits

    # -- asking --------------------------------------------------------------------------

    def predict(self, X, return_std=False):
        """Predict the weighted mean of the bank's targets.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            Queries. None: the bank's rows, each without itself (leave-one-out).
        return_std : bool, default=False
            Whether to return the standard deviations of the predictive distributions too.

        Returns
        -------
        y_mean : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            Predictions, in the shape of the `y` given to fit.
        y_std : ndarray of the same shape
            Standard deviations, calibrated as all that is said of the distribution; only with
            ``return_std=True``.
        """
        if return_std and X is not None:
            X = self.embed(X)  # once for both
        bank, query, leave_one_out = self._query(X)
        mean = bank.predict(self.network_.head, query, leave_one_out).cpu().numpy()
        return (mean, self._predict_std(X)) if return_std else mean

    def embed(self, X):
        """Embed queries once, to ask several things about them.

        What it returns stands for `X` wherever this estimator asks for queries: in
        :meth:`predict`, :meth:`kneighbors`, :meth:`predict_quantiles` and so on. It spares the
        time of a large feature extractor.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        Embedded
            The queries, for this estimator until it is fitted anew.
        """
        check_is_fitted(self)
        return Embedded(self._validate_and_embed(X), self.network_)

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
            Weights; each row sums to 1, and the product with the bank's targets, those given
            to fit, is the prediction: to rounding with ``tolerance=0``. Column j is the j-th
            row of the bank.

        Raises
        ------
        ValueError
            If `tolerance` is negative, or leaves a query without neighbours.
        """
        bank, query, leave_one_out = self._query(X)
        if tolerance < 0:
            raise ValueError(f"tolerance must not be negative, got {tolerance!r}")
        weights = bank.sparse_weights(self.network_.head, query, leave_one_out, tolerance)
        if (np.diff(weights.indptr) == 0).any():
            raise ValueError(f"tolerance={tolerance!r} leaves a query without neighbours")
        return weights

    def kneighbors(self, X=None, n_neighbors=5):
        """Heaviest neighbours of each query, heaviest first.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        n_neighbors : int, default=5
            Number of neighbours to return.

        Returns
        -------
        weights : ndarray of shape (n_queries, n_neighbors)
            Weights, not distances as in scikit-learn: the share that each neighbour has in
            the prediction. Rows of weight 0 are no neighbours, and in no particular order.
        ids : ndarray of shape (n_queries, n_neighbors)
            Names of the neighbours: row numbers in the data given to fit, and what
            :meth:`add_neighbors` returned.

        Raises
        ------
        ValueError
            If `n_neighbors` is not between 1 and the number of rows that are admitted: one
            less than all with ``X=None``.
        """
        bank, query, leave_one_out = self._query(X)
        n_admitted = len(bank) - leave_one_out
        if not isinstance(n_neighbors, Integral) or not 1 <= n_neighbors <= n_admitted:
            raise ValueError(
                f"n_neighbors must be an integer from 1 to {n_admitted}, got {n_neighbors!r}"
            )
        weights, positions = bank.heaviest(self.network_.head, query, n_neighbors, leave_one_out)
        return weights.cpu().numpy(), bank.ids[positions].cpu().numpy()

    def effective_n_neighbors(self, X=None):
        """Effective number of neighbours of each query, ``1 / sum(weight ** 2)``.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries,)
            k, if k neighbours weigh the same and the others nothing; from 1 to all rows.
        """
        bank, query, leave_one_out = self._query(X)
        return bank.effective_sizes(self.network_.head, query, leave_one_out).cpu().numpy()

    def soft_n_neighbors(self, X=None):
        """Size of the neighbourhood that SoftStep learned for each query: its k.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).

        Returns
        -------
        ndarray of shape (n_queries,)
            Sum of the step, from 0 (rejected) to 1, over the bank; a mean over the networks.

        Raises
        ------
        ValueError
            If the estimator has no step: ``softstep=None``.
        """
        bank, query, leave_one_out = self._query(X)
        if self.softstep is None:
            raise ValueError("soft_n_neighbors needs a softstep, got softstep=None")
        return bank.step_sums(self.network_.head, query, leave_one_out).cpu().numpy()

    def distance_to_bank(self, X=None):
        """Distance of each query to the nearest row of the bank, a warning where it is large.

        Compare it with what is usual for the bank itself,
        ``np.quantile(reg.distance_to_bank(), 0.99)``: a prediction farther out leans on rows
        that are not like it, and its distribution does not know.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself.

        Returns
        -------
        ndarray of shape (n_queries,)
            Euclidean distances between embeddings, those of several networks side by side.
        """
        bank, query, leave_one_out = self._query(X)
        nearest = NearestNeighbors(n_neighbors=1).fit(bank.embeddings.cpu().numpy())
        return nearest.kneighbors(None if leave_one_out else query.cpu().numpy())[0][:, 0]

    def influence(self, X=None, y=None):
        """What each row of the bank does to the predictions of some queries.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), optional
            Queries. None: the bank's rows, each without itself (leave-one-out).
        y : array-like of shape (n_queries,) or (n_queries, n_outputs), optional
            Their targets; with ``X=None``, those of the bank.

        Returns
        -------
        :class:`~sklearn.utils.Bunch`
            Arrays of shape (n_neighbors,), in the order of the bank: ``id``; ``weight``, the
            sum of its weights over the queries; ``change``, the root mean square, over
            queries, of the change of a prediction when the row is left out; ``error``, the
            mean change of the squared error then, where targets are known: positive where the
            row helps. Several outputs add up.

        Notes
        -----
        In closed form: without row j a network's prediction m becomes
        ``m + w_j (m - y_j) / (1 - w_j)``. With a step, this holds its scale fixed.
        """
        bank, query, leave_one_out = self._query(X)
        truth = None
        if leave_one_out:
            truth = bank.targets
        elif y is not None:
            truth = self._check_targets(y, len(query), bank)
        residuals = None
        if truth is not None:
            residuals = bank.predict(self.network_.head, query, leave_one_out) - truth
            residuals = residuals.reshape(len(query), -1)
        weight, change, error = bank.influence(self.network_.head, query, leave_one_out, residuals)
        found = Bunch(id=bank.ids, weight=weight, change=change.sqrt())
        if truth is not None:
            found.error = error
        return Bunch(**{name: tensor.cpu().numpy() for name, tensor in found.items()})

    def transform(self, X):
        """Embed rows in the space where neighbours are compared.

        In the given space (``SoftStepKNeighborsRegressor`` with ``hidden_layer_sizes=None``)
        these are the features, for l2 and l1 less their training means.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to embed.

        Returns
        -------
        ndarray of shape (n_samples, n_embedding_dimensions)
            Embeddings, float32.
        """
        check_is_fitted(self)
        return self._validate_and_embed(X).cpu().numpy()

    def _query(self, X):
        """Take the bank, and queries or its own rows: (bank, query, whether to leave one out)."""
        check_is_fitted(self)
        bank = self.bank_  # once: another thread may put an edited one in its place
        if X is not None:
            return bank, self._validate_and_embed(X), False
        if len(bank) < 2:
            raise ValueError("X=None needs at least 2 rows in the bank, it has 1")
        return bank, bank.embeddings, True

    def _check_targets(self, y, n_rows, bank):
        """Targets of some rows as a float64 tensor, with the outputs of the bank's."""
        y = check_targets(y, n_rows)
        if y.shape[1:] != bank.targets.shape[1:]:
            outputs = ", ".join(map(str, bank.targets.shape[1:]))
            raise ValueError(f"y must have the bank's shape (n, {outputs}), got {y.shape}")
        return torch.tensor(y, dtype=torch.float64, device=bank.targets.device)

    def _validate_and_embed(self, X):
        if not isinstance(X, Embedded):
            return self._embed(self._take(X))
        if X.network is not self.network_:
            raise ValueError("X must be embedded by this estimator as it is fitted now")
        return X.embeddings

    def _take(self, X):
        """Validate queries: rows for the network."""
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return _to_tensor(X, self.scaler_)

    def _embed(self, X):
        """Embed scaled rows, shape (n, n_features) -> (n, d), as the bank stores them."""
        device = next(self.network_.parameters()).device
        return self.network_.embed(X.to(device, torch.float64)).float()

    # -- scikit-learn --------------------------------------------------------------------

    @property
    def _n_features_out(self):
        return self.bank_.embeddings.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self):
        """Pickle from the CPU, so that a model fitted on a GPU loads without one."""
        state = super().__getstate__()
        if "network_" in state:
            state = state.copy()
            state["network_"] = copy.deepcopy(state["network_"]).cpu()
        return state


def check_targets(y, n_rows):
    """Validate targets of a number of rows: float64 of shape (n_rows,) or (n_rows, n_outputs)."""
    if y is None:
        raise ValueError("y must be the targets of X, got None")
    y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    if len(y) != n_rows:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: X has {n_rows}, y has {len(y)}"
        )
    return y


def _check_groups(groups, n_rows):
    """Number the groups from 0, (n_rows,); None if there are none."""
    if groups is None:
        return None
    groups = column_or_1d(groups)
    if len(groups) != n_rows:
        raise ValueError(f"groups must have a value for each of {n_rows} rows, got {len(groups)}")
    names, numbers = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"groups must be at least 2, got {len(names)}")
    return numbers


@np.errstate(over="ignore", invalid="ignore")  # _to_tensor looks at what comes of it
def _fit_scaler(scaler, X):
    return scaler if scaler is None else scaler.fit(X)


@np.errstate(over="ignore", invalid="ignore")
def _to_tensor(X, scaler, name="X"):
    """Scaled values as a new float32 tensor, shape (n, columns); an error if out of range."""
    X = X if scaler is None else scaler.transform(X)
    return torch.tensor(check_array(X, dtype=np.float32, ensure_min_samples=0, input_name=name))


def _standardize(y):
    """Targets with mean 0 and standard deviation 1 as a float32 tensor of y's shape."""
    columns = y.reshape(len(y), -1)
    return _to_tensor(columns, _fit_scaler(StandardScaler(), columns), "y").reshape(y.shape)


def _resolve_device(device):
    """Turn the parameter `device` into a torch.device that exists on this machine."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        one = torch.ones(1, device=device)
        one.item()  # fails on a device that only pretends to compute
        return one.device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device must be one that torch can use here, got {device!r}") from error


@contextmanager
def _local_seed(seed, device=None):
    """Seed torch inside the block only, for one thread at a time.

    Layers draw their initial weights from torch's global CPU generator, which we put back, and
    dropout from that of its device.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with _SEEDING, torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield
