"""Sample weights: a row of weight 2 counts as two, one of weight 0 is not there."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.data import RegressionTargets, Sample, Split, normalize_mean, weighted_quantiles
from inner.inference import (
    Evaluation,
    LabelExclusion,
    NeighborBank,
    Neighbors,
    averaged_out,
    calibrate_on_bank,
    calibrate_on_held_out,
    fit_calibration,
)
from inner.network import NeighborNetwork
from inner.training import NEIGHBOR_POOLS, TrainingConfig, refine, refinement, train_network
from sklearn import config_context
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.metrics import mean_poisson_deviance, r2_score
from sklearn.model_selection import GridSearchCV, cross_validate
from torch import nn

from nona_sklearn import (
    Calibration,
    FeatureExtractor,
    MLPEmbedding,
    NONAHead,
    NONARegressor,
    Rows,
    SoftStep,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)
from nona_sklearn.attention import neighbor_weights
from nona_sklearn.attention.functional import L2Attention
from nona_sklearn.losses import WeightedLoss
from nona_sklearn.similarity import l2
from nona_sklearn.weighting import Softmax


def nona(**kwargs):
    return NONARegressor(**{"n_estimators": 1, "max_iter": 3, "random_state": 0, **kwargs})


def softstep_knn(**kwargs):
    return SoftStepKNeighborsRegressor(**{"max_iter": 3, "random_state": 0, **kwargs})


def make_rows(n, n_outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    return X, (y if n_outputs is None else np.stack([y, -(y**2)], axis=1))


X, y = make_rows(60)
X_test, y_test = make_rows(15, seed=1)
WEIGHTS = np.random.default_rng(2).uniform(0.2, 5, size=60)
COUNTS = np.random.default_rng(3).integers(1, 4, size=60)
ESTIMATORS = [
    nona(n_estimators=2),
    nona(training=TrainingOptions(neighbor_pool="batch"), softstep="s1", validation_fraction=None),
    nona(training=TrainingOptions(neighbor_pool="memory"), similarity="log_l2", adjust=False),
    softstep_knn(),
    softstep_knn(hidden_layer_sizes=(8,), validation_fraction=0.15),
]


def name_of(estimator):
    changed = [
        str(v) for k, v in estimator.get_params().items() if k in ("softstep", "similarity")
    ]
    return "-".join([type(estimator).__name__, *changed])


every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)


# -- none, equal, zero --------------------------------------------------------------------------


@pytest.mark.slow
@every_estimator
def test_equal_weights_are_none(estimator):
    plain = clone(estimator).fit(X, y)
    for weights in (3.0, np.ones(60), np.full(60, 0.1)):
        fit = clone(estimator).fit(X, y, sample_weight=weights)
        np.testing.assert_array_equal(fit.predict(X_test), plain.predict(X_test))
        if hasattr(fit, "bank_"):
            assert fit.bank_.neighbors.log_prior is None
            assert fit.calibration_ == plain.calibration_


@every_estimator
@pytest.mark.parametrize("weights", [np.ones(60), WEIGHTS], ids=["ones", "weights"])
def test_a_row_of_weight_0_is_absent(estimator, weights):
    weights = np.where(np.arange(60) % 3 == 1, 0, weights)
    kept, groups = weights > 0, np.arange(60) // 2
    fit = clone(estimator).fit(X, y, groups=groups, sample_weight=weights)
    without = clone(estimator).fit(
        X[kept], y[kept], groups=groups[kept], sample_weight=weights[kept]
    )
    np.testing.assert_array_equal(fit.predict(X_test), without.predict(X_test))
    assert [epoch["train_loss"] for epoch in fit.history_] == [
        epoch["train_loss"] for epoch in without.history_
    ]
    for ours, theirs in zip(fit.validation_indices_, without.validation_indices_, strict=True):
        if theirs is not None:
            np.testing.assert_array_equal(ours, np.flatnonzero(kept)[theirs])
    if not hasattr(fit, "bank_"):
        return
    assert fit.calibration_ == without.calibration_
    np.testing.assert_array_equal(fit.predict(None), without.predict(None))
    np.testing.assert_array_equal(fit.bank_.ids, np.flatnonzero(kept))
    ids, positions = fit.heaviest_neighbors(X_test)[1], without.heaviest_neighbors(X_test)[1]
    np.testing.assert_array_equal(ids, np.flatnonzero(kept)[positions])


def test_names_go_on_behind_all_rows_that_were_given():
    weights = np.r_[np.ones(50), np.zeros(10)]
    reg = pickle.loads(pickle.dumps(nona().fit(X, y, sample_weight=weights)))
    assert reg.add_neighbors(X_test[:2], y_test[:2]).tolist() == [60, 61]
    with pytest.raises(ValueError, match=r"ids must be in the bank, got unknown \[55\]"):
        reg.remove_neighbors(ids=55)


def test_labels_of_a_frame_stay_with_their_rows():
    pd = pytest.importorskip("pandas")
    index = [f"row {i}" for i in range(60)]
    frame, series = pd.DataFrame(X, index, list("abc")), pd.Series(y, index)
    weights = np.where(np.arange(60) % 2, WEIGHTS, 0)
    reg = nona().fit(frame, series, sample_weight=pd.Series(weights, index))
    assert reg.bank_.names.tolist() == index[1::2]
    assert reg.explain(frame[:1], 3)["neighbor"].isin([*index[1::2], "others"]).all()
    assert list(reg.feature_names_in_) == ["a", "b", "c"]


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        return torch.from_numpy(X[i]).float(), y[i]


@pytest.mark.parametrize("kind", ["array", "list", "dict", "rows", "dataset"])
def test_rows_of_an_extractor_are_left_out_too(kind):
    class Linear(nn.Linear):
        def forward(self, x):
            return super().forward(x)

    torch.manual_seed(0)
    features = X.astype(np.float32)
    source = {
        "array": features,
        "list": list(torch.from_numpy(features)),
        "dict": {"x": features},
        "rows": Rows(features),
        "dataset": Pairs(),
    }[kind]
    weights = np.where(np.arange(60) % 3, WEIGHTS, 0)
    kept = weights > 0
    reg = nona(feature_extractor=Linear(3, 4))
    fit = clone(reg).fit(source, None if kind == "dataset" else y, sample_weight=weights)
    without = clone(reg).fit(features[kept], y[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(
        fit.network_.embed(Rows(features)), without.network_.embed(Rows(features))
    )
    np.testing.assert_array_equal(fit.bank_.ids, np.flatnonzero(kept))


# -- a row of weight 2 is two -------------------------------------------------------------------


def with_bank(reg, bank):
    """The same trained estimator with another bank."""
    reg = copy.deepcopy(reg)
    reg.bank_ = bank
    return reg


def heavier(reg, counts):
    """The same trained estimator, whose rows count so often."""
    prior = torch.tensor(counts).log().float()
    return with_bank(
        reg, replace(reg.bank_, neighbors=replace(reg.bank_.neighbors, log_prior=prior))
    )


def repeated(reg, counts):
    """The same trained estimator, whose rows are in the bank so often."""
    bank = reg.bank_.in_order(np.repeat(np.arange(len(reg.bank_)), counts))
    return with_bank(reg, replace(bank, ids=torch.arange(len(bank)), next_id=None))


def summed(values, counts):
    """Sums over the rows that are one row repeated."""
    return np.add.reduceat(values, np.cumsum(counts) - counts, axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("n_outputs", [None, 2])
@pytest.mark.parametrize(
    "estimator",
    [
        nona(n_estimators=3),
        nona(similarity="log_l2", adjust=False),
        nona(similarity="dot", weighting=Softmax(learn_temperature=False)),
        nona(softstep="s1"),
        nona(softstep=SoftStep("s2", "pointwise"), n_estimators=2),
        softstep_knn(softstep=SoftStep("s1"), similarity="l2"),
        softstep_knn(softstep=SoftStep("s1"), weighting="uniform"),
    ],
    ids=str,
)
def test_a_row_of_weight_2_is_two_rows(estimator, n_outputs):
    """Of all rows: among a number of nearest ones, two rows take two places."""
    X, y = make_rows(60, n_outputs)
    reg = clone(estimator).set_params(n_neighbors=None).fit(X, y)
    # A power of the similarities, not of what rows weigh beforehand.
    reg.calibration_ = Calibration(power=0.5, noise=(0.3,) * (n_outputs or 1))
    ours, theirs = heavier(reg, COUNTS), repeated(reg, COUNTS)
    close = {"rtol": 1e-4, "atol": 1e-5}  # float32's digits of logits of about 10
    for evaluate in (
        lambda reg: reg.predict(X_test),
        lambda reg: reg.predict(X_test, return_std=True)[1],
        lambda reg: reg.predict_quantiles(X_test, [0.1, 0.5, 0.9]),
        lambda reg: reg.predict_cdf(X_test, [-1.0, 0.3]),
        lambda reg: reg.neighborhood(X_test)["distance"],
    ):
        np.testing.assert_allclose(evaluate(ours), evaluate(theirs), **close)
    drawn = np.isclose(*(reg.sample_y(X_test, 20) for reg in (ours, theirs)), **close)
    assert drawn.mean() > 0.99  # rounding may move a draw from one row to the next
    weights = ours.neighbor_weights(X_test).toarray()
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(
        weights, summed(theirs.neighbor_weights(X_test).toarray(), COUNTS), **close
    )
    one_each = 1 / (weights**2).sum(axis=1)  # a row is one neighbour, whatever it weighs
    np.testing.assert_allclose(
        ours.neighborhood(X_test)["effective_n_neighbors"], one_each, rtol=1e-4
    )
    heaviest, ids = ours.heaviest_neighbors(X_test, 4)
    np.testing.assert_allclose(np.take_along_axis(weights, ids, 1), heaviest, **close)
    np.testing.assert_allclose(heaviest, -np.sort(-weights)[:, :4], **close)


def test_probabilities_without_noise_are_those_of_the_repeated_rows():
    reg = nona(adjust=False, n_neighbors=None).fit(X, y)
    reg.calibration_ = Calibration(power=2.0)
    levels = np.linspace(0.03, 0.97, 9)
    ours, theirs = (
        make(reg, COUNTS).predict_cdf(X_test, np.quantile(y, levels))
        for make in (heavier, repeated)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_row_leaves_with_all_of_its_weight():
    reg = heavier(nona(n_estimators=2).fit(X, y), COUNTS)
    loo = reg.predict(None)
    assert (reg.neighbor_weights(None).diagonal() == 0).all()
    for row in (0, 7, 31):
        without = copy.deepcopy(reg).remove_neighbors(ids=row)
        assert loo[row] == pytest.approx(without.predict(X[[row]])[0], rel=1e-4, abs=1e-5)


def test_influence_is_of_the_row_with_all_of_its_weight():
    """In closed form; one network that adjusts nothing."""
    reg = heavier(nona(adjust=False).fit(X, y), COUNTS)
    found = reg.influence(X_test, y_test)
    np.testing.assert_allclose(
        found.weight, reg.neighbor_weights(X_test).sum(axis=0), rtol=1e-4, atol=1e-6
    )
    errors = (reg.predict(X_test) - y_test) ** 2
    for row in (3, 20):
        without = copy.deepcopy(reg).remove_neighbors(ids=row).predict(X_test)
        change = np.sqrt(np.mean((without - reg.predict(X_test)) ** 2))
        assert found.change[row] == pytest.approx(change, rel=1e-3, abs=1e-6)
        error = np.mean((without - y_test) ** 2 - errors)
        assert found.error[row] == pytest.approx(error, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("step", ["similarity", "rank"])
def test_a_step_counts_rows_whatever_they_weigh(step):
    reg = softstep_knn(similarity="log_l2", softstep=SoftStep("s1", on=step)).fit(X, y)
    ours = heavier(reg, COUNTS)
    np.testing.assert_array_equal(
        ours.neighborhood(X_test)["soft_n_neighbors"], reg.neighborhood(X_test)["soft_n_neighbors"]
    )
    assert ((ours.neighbor_weights(X_test) > 0) != (reg.neighbor_weights(X_test) > 0)).nnz == 0


# -- what training takes from it ----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*networks predict validation rows no better")
@pytest.mark.parametrize(  # ranks would take some of the rows
    "estimator", [nona(), softstep_knn(softstep=SoftStep("s1"))], ids=["nona", "softstep"]
)
def test_rows_at_one_place_are_averaged_by_weight(estimator):
    """All features are the same: rows differ by their weights only."""
    estimator = clone(estimator).set_params(n_neighbors=None, trend=None)
    prediction = estimator.fit(np.ones((60, 3)), y, sample_weight=WEIGHTS).predict(np.ones((1, 3)))
    assert prediction[0] == pytest.approx(np.average(y, weights=WEIGHTS), rel=1e-4)


@pytest.mark.parametrize(
    "estimator", [nona(), softstep_knn(validation_fraction=0.15)], ids=name_of
)
def test_the_unit_of_the_weights_does_not_matter(estimator):
    one, other = (
        clone(estimator).fit(X, y, sample_weight=unit * WEIGHTS).predict(X_test)
        for unit in (1, 2.0**-900)  # a power of two, so that their logarithms differ the same
    )
    np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


def make_network(n_adjusted=0, step=None):
    torch.manual_seed(0)
    head = NONAHead(step=step, learn_temperature=True, n_adjusted=n_adjusted)
    return NeighborNetwork(MLPEmbedding(3, 3 + n_adjusted, (8,)), head)


def tensors(n, seed=0, n_outputs=None):
    X, y = make_rows(n, n_outputs, seed)
    prior = np.random.default_rng(seed).normal(size=n)
    return tuple(torch.tensor(part, dtype=torch.float32) for part in (X, y, prior))


@pytest.mark.parametrize("n_outputs", [None, 2])
@pytest.mark.parametrize("micro_batch_size", [None, 7])
@pytest.mark.parametrize("neighbor_pool", ["dataset", "memory"])
def test_losses_are_weighted_means(neighbor_pool, micro_batch_size, n_outputs):
    """At a learning rate of nothing, of all rows, each without itself; and of validation rows."""
    train, valid = tensors(40, n_outputs=n_outputs), tensors(20, seed=1, n_outputs=n_outputs)
    network = make_network(n_adjusted=n_outputs or 1)
    config = TrainingConfig(
        neighbor_pool=neighbor_pool,
        pool_size=40,
        batch_size=16,
        extractor=FeatureExtractor(nn.Identity, micro_batch_size=micro_batch_size),
        learning_rate_init=1e-30,
        weight_decay=0.0,
        max_iter=1,
        n_iter_no_change=5,
        verbose=0,
        device=torch.device("cpu"),
    )
    _, history = train_network(network, Sample(*train), Sample(*valid), config, seed=0)
    neighbors = Neighbors(network.embed(train[0]), *train[1:])
    numbers = torch.arange(40)
    network.load_state_dict(make_network(n_adjusted=n_outputs or 1).state_dict())
    network.train()
    for (X, y, prior), exclusion, name in (
        (train, LabelExclusion(numbers, numbers), "train_loss"),
        (valid, None, "valid_loss"),
    ):
        prediction = Evaluation(network.head, neighbors, network.embed(X), exclusion).attend()
        errors = (prediction - y).square().reshape(len(y), -1).mean(dim=1).detach()
        expected = np.average(errors, weights=prior.exp())
        assert history[0][name] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("neighbor_pool", NEIGHBOR_POOLS)
def test_pools_hold_the_prior_weights_of_rows(neighbor_pool):
    X, y, prior = tensors(20)
    pool = NEIGHBOR_POOLS[neighbor_pool](X, y, 12, torch.Generator(), None, prior)
    network = make_network()
    evaluation = pool.evaluate(network, torch.arange(4))
    for neighbors in (evaluation.neighbors, pool.neighbors(network)):
        rows = (neighbors.values[:, None] == y).nonzero()[:, 1]
        torch.testing.assert_close(neighbors.log_prior, prior[rows])


def test_refinement_is_of_weighted_queries_and_neighbors(monkeypatch):
    seen = []
    monkeypatch.setattr(refinement, "refine", lambda *arguments, **_: seen.append(arguments))
    reg = nona().fit(X, y, sample_weight=WEIGHTS)
    options = TrainingOptions(pool_size=20)
    knn = softstep_knn(training=options, trend=None)  # whose queries are training rows
    knn.fit(X, y, sample_weight=WEIGHTS)
    [valid] = reg.validation_indices_
    train = np.setdiff1d(np.arange(60), valid)
    for (evaluation, loss, values, weights), queries, neighbors in zip(
        seen, (valid, np.arange(60)), (train, np.arange(60)), strict=True
    ):
        assert isinstance(loss, WeightedLoss)
        for found, rows in (
            (evaluation.neighbors.log_prior.exp(), neighbors),
            (weights, queries),
        ):
            expected = np.sort(WEIGHTS[rows])
            np.testing.assert_allclose(
                np.sort(found) / found.sum().item(), expected / expected.sum(), rtol=1e-4
            )
        encoded = (y[queries] - np.average(y, weights=WEIGHTS)) / reg.targets_.scaler.scale_
        np.testing.assert_allclose(np.sort(values), np.sort(encoded), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("step", [None, "s1"])
def test_refinement_weighs_rows_as_if_repeated(step):
    X, y, _ = tensors(50)
    X_valid, y_valid, _ = tensors(20, seed=1)
    counts = torch.tensor(COUNTS[:20])
    found = []
    for repeats, loss, weights in (
        (torch.ones_like(counts), WeightedLoss(nn.MSELoss), [counts.float()]),
        (counts, nn.MSELoss(), []),
    ):
        network = make_network(step=step and SoftStep(step))
        query, values = (each.repeat_interleave(repeats, 0) for each in (X_valid, y_valid))
        evaluation = Evaluation(network.head, Neighbors(network.embed(X), y), network.embed(query))
        refine(evaluation, loss, values, *weights)
        found.append(
            [float(each) for each in network.head.state_dict().values() if each.ndim == 0]
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("loss", [nn.MSELoss, nn.HuberLoss, nn.L1Loss])
@given(seed=st.integers(0, 99), n_outputs=st.sampled_from([None, 1, 3]))
def test_a_weighted_loss_is_that_of_repeated_rows(loss, seed, n_outputs):
    generator = torch.Generator().manual_seed(seed)
    shape = (12,) if n_outputs is None else (12, n_outputs)
    prediction, truth = torch.randn(2, *shape, generator=generator).double()
    counts = torch.randint(1, 5, (12,), generator=generator)
    ours = WeightedLoss(loss)(prediction, truth, normalize_mean(counts.log()))
    theirs = loss()(*(each.repeat_interleave(counts, 0) for each in (prediction, truth)))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)  # the logarithms are float32


def test_targets_are_standardised_by_weight():
    for targets in (y, np.stack([y, y**2], 1)):
        ours = RegressionTargets().fit(targets, COUNTS).scaler
        theirs = RegressionTargets().fit(np.repeat(targets, COUNTS, axis=0)).scaler
        np.testing.assert_allclose(ours.mean_, theirs.mean_)
        np.testing.assert_allclose(ours.scale_, theirs.scale_)


def l2_problem():
    torch.manual_seed(0)
    query, neighbors, targets = (torch.randn(n, 2, dtype=torch.float64) for n in (3, 5, 5))
    temperature, log_prior = torch.tensor(0.7).double(), torch.randn(5).double()
    return [
        t.requires_grad_() for t in (query, neighbors, targets, temperature)
    ], log_prior.requires_grad_()


def test_the_quick_attention_takes_a_prior():
    (query, neighbors, targets, temperature), log_prior = l2_problem()
    excluded = torch.eye(3, 5).bool()
    ours = L2Attention.apply(query, neighbors, targets, temperature, excluded, log_prior)
    logits = l2(query, neighbors) / temperature + log_prior
    torch.testing.assert_close(ours, neighbor_weights(logits, excluded) @ targets)


def test_gradients_of_the_quick_attention_with_a_prior_are_finite_differences():
    inputs, log_prior = l2_problem()
    assert torch.autograd.gradcheck(
        lambda *inputs: L2Attention.apply(*inputs[:4], None, inputs[4]), [*inputs, log_prior]
    )


def test_one_device_of_accelerate_changes_nothing():
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    features, reg = X.astype(np.float32), nona(feature_extractor=nn.Linear(3, 4))
    alone = clone(reg).fit(features, y, sample_weight=WEIGHTS)
    module = FeatureExtractor(
        reg.feature_extractor, accelerator=lambda: accelerate.Accelerator(cpu=True)
    )
    reg.set_params(feature_extractor=module)
    reg.fit(features, y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(reg.predict(features), alone.predict(features), rtol=1e-5)


# -- calibration --------------------------------------------------------------------------------


def test_calibration_counts_errors_by_weight():
    """As if the queries were repeated so often; the farther a row, the wider are the targets.

    Small errors are those of the nearest rows, so the data decide the power of the weights.
    """
    generator = torch.Generator().manual_seed(0)
    values, residual = (torch.randn(n, 1, generator=generator).double() for n in (30, 80))
    places = torch.linspace(0, 1.5, 30)[:, None]
    values *= 1 + 20 * places.double()
    residual *= torch.linspace(0.2, 2, 80)[:, None]
    counts = torch.arange(80) // 20 * 2 + 1

    def calibrate(repeats, weights):
        query = torch.zeros(int(repeats.sum()), 1)
        evaluation = Evaluation(NONAHead().eval(), Neighbors(places, values), query)
        return fit_calibration(evaluation, residual.repeat_interleave(repeats, 0), weights)

    ours = calibrate(torch.ones_like(counts), normalize_mean(counts.log()))
    theirs = calibrate(counts, None)
    assert ours.power == theirs.power
    np.testing.assert_allclose(ours.noise, theirs.noise, rtol=1e-6)
    # Equally spaced quantiles of 80 errors and of 320.
    assert np.abs(np.subtract(ours.errors, theirs.errors)).mean() < 0.1
    assert calibrate(torch.ones_like(counts), None).noise[0] < 0.9 * ours.noise[0]


def test_evened_values_are_the_weighted_quantiles():
    values, weights = np.array([3.0, 1.0, 2.0, 4.0]), torch.tensor([2.2, 1.0, 0.4, 0.4])
    assert weighted_quantiles(values, weights).tolist() == [1.0, 3.0, 3.0, 3.0]


def test_what_an_average_spares_counts_by_weight():
    """In row 2 two networks differ by 1, in row 5 by 3: ``((1 + 3 * 3) / 4) ** 2 / 2 / 2``."""
    differences = torch.tensor([[1.0], [3.0]])
    weights = normalize_mean(torch.tensor([0.0, np.log(3.0)]))
    assert averaged_out(differences, weights, 2).item() == pytest.approx(1.5625)
    assert averaged_out(differences, None, 2).item() == pytest.approx(1.0)


@pytest.mark.parametrize("held_out", [False, True])
def test_intervals_of_a_bank_follow_its_heavy_rows(held_out):
    """Twins differ by 2, or by 20; those of larger weight determine the width."""
    signs = torch.tensor([1.0, -1.0]).repeat(40).double()
    values = signs * torch.tensor([1.0, 10.0]).repeat_interleave(40)
    places = torch.arange(80)[:, None] // 2 * 1e3
    noises = []
    for heavy in (0, 40):
        prior = torch.zeros(80)
        prior[heavy : heavy + 40] = 7.0
        bank, head = NeighborBank(Neighbors(places, values, prior)), NONAHead().eval()
        calibration = (
            calibrate_on_held_out(head, bank, [Split(np.arange(0), np.arange(80))])
            if held_out
            else calibrate_on_bank(head, bank)
        )
        noises.append(calibration.noise[0])
    assert noises[1] > 3 * noises[0]


# -- edits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_fit", "added"),
    [
        (None, 2.0),
        (np.full(60, 3.0), 1.0),
        (np.full(60, 3.0), None),
        (WEIGHTS, None),
        (WEIGHTS, 7),
    ],
    ids=["none, 2", "3, 1", "3, none", "many, none", "many, 7"],
)
def test_weights_mean_the_same_at_fit_and_later(at_fit, added):
    reg = nona(n_estimators=2, similarity="l2").fit(X, y, sample_weight=at_fit)
    before = reg.neighbor_weights(X_test).toarray()
    plain = copy.deepcopy(reg)
    plain.bank_ = replace(
        plain.bank_, neighbors=replace(plain.bank_.neighbors, log_prior=None), weight_unit=1.0
    )
    plain.add_neighbors(X_test[:5], y_test[:5])
    reg.add_neighbors(X_test[:5], y_test[:5], sample_weight=added)
    every = np.r_[np.ones(60) if at_fit is None else at_fit, np.full(5, added or 1.0)]
    ours = reg.neighbor_weights(X_test).toarray()
    expected = [
        own.neighbor_weights(X_test).toarray() * every for own in _one_by_one(plain)
    ]  # by definition, of each network
    expected = np.mean([e / e.sum(axis=1, keepdims=True) for e in expected], axis=0)
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-6)
    reg.remove_neighbors(ids=np.arange(60, 65))
    np.testing.assert_allclose(
        reg.neighbor_weights(X_test).toarray(), before, rtol=1e-4, atol=1e-7
    )


def _one_by_one(reg):
    """Each network of an estimator by itself."""
    head, bank = reg.network_.head, reg.bank_.embeddings
    for i, (own, _, z) in enumerate(head.split_by_head(bank[:0], bank)):
        alone = copy.deepcopy(reg)
        alone.network_.embedding = alone.network_.embedding.embeddings[i]
        alone.network_.head = own
        alone.bank_ = replace(alone.bank_, neighbors=replace(alone.bank_.neighbors, rows=z))
        yield alone


def test_rows_of_one_weight_need_no_prior():
    reg = nona().fit(X, y, sample_weight=3)
    reg.add_neighbors(X_test[:5], y_test[:5], sample_weight=3)
    assert reg.bank_.neighbors.log_prior is None


def test_edits_and_pickles_keep_what_rows_weigh():
    reg = nona().fit(X, y, sample_weight=WEIGHTS)
    prior = reg.bank_.neighbors.log_prior
    np.testing.assert_allclose(prior, np.log(WEIGHTS / WEIGHTS.mean()), rtol=1e-5, atol=1e-6)
    restored = pickle.loads(pickle.dumps(reg))
    np.testing.assert_array_equal(restored.predict(X_test), reg.predict(X_test))
    assert restored.bank_.weight_unit == pytest.approx(WEIGHTS.mean())  # of no single row
    reg.remove_neighbors(ids=[0, 9])
    torch.testing.assert_close(reg.bank_.neighbors.log_prior, prior[reg.bank_.ids])
    reg.compress(30, X_test)
    torch.testing.assert_close(reg.bank_.neighbors.log_prior, prior[reg.bank_.ids])
    reg.set_neighbor_targets(np.arange(30.0))
    torch.testing.assert_close(reg.bank_.neighbors.log_prior, prior[reg.bank_.ids])
    np.testing.assert_allclose(
        reg.predict(X_test), reg.neighbor_weights(X_test) @ np.arange(30.0), rtol=1e-4
    )


def test_an_index_weighs_its_candidates_beforehand():
    pytest.importorskip("faiss")
    exact, fast = (
        nona(n_estimators=2, n_neighbors=20, similarity="l2", algorithm=algorithm)
        for algorithm in ("brute", "hnsw")
    )
    exact.fit(X, y, sample_weight=WEIGHTS)
    fast.fit(X, y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(fast.predict(X_test), exact.predict(X_test), atol=1e-5)


# -- wrong weights ------------------------------------------------------------------------------


def wrong(value, row=4):
    weights = np.ones(60)
    weights[row] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (wrong(-1), "sample_weight must be finite and not negative, got -1.0 in row 4"),
        (-0.5, "sample_weight must be finite and not negative, got -0.5 in row 0"),
        (np.inf, "sample_weight must be finite and not negative, got inf in row 0"),
        (wrong(np.nan), "sample_weight must be finite and not negative, got nan in row 4"),
        (wrong(np.inf, 0), "sample_weight must be finite and not negative, got inf in row 0"),
        (np.ones(59), r"sample_weight must have shape \(60,\), got \(59,\)"),
        (np.ones((60, 1)), r"sample_weight must have shape \(60,\), got \(60, 1\)"),
        (["1"] * 59 + ["two"], "sample_weight must hold numbers: .* to float: 'two'"),
        (np.zeros(60), "sample_weight must be above zero for at least 2 rows, got 0 of 60"),
        (np.eye(60)[3], "sample_weight must be above zero for at least 2 rows, got 1 of 60"),
    ],
)
@pytest.mark.parametrize("estimator", [nona(), softstep_knn()], ids=name_of)
def test_wrong_weights_are_refused(estimator, weights, message):
    reg = clone(estimator)
    with pytest.raises(ValueError, match=message):
        reg.fit(X, y, sample_weight=weights)
    assert vars(reg) == vars(clone(estimator))


@pytest.mark.parametrize("estimator", [nona(), softstep_knn()], ids=name_of)
def test_a_wrong_target_is_named_by_its_row_among_all_that_were_given(estimator):
    weights, targets = np.arange(60) % 2, y.copy()
    targets[[6, 41]] = np.nan  # row 6 is as good as absent
    with pytest.raises(ValueError, match=r"Input y contains NaN: nan in row 41$"):
        clone(estimator).fit(X, targets, sample_weight=weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 0.0], "sample_weight must be above 0 for added rows, got 0.0 in row 1"),
        ([1.0, -2.0], "sample_weight must be finite and not negative, got -2.0 in row 1"),
        ([1.0], r"sample_weight must have shape \(2,\), got \(1,\)"),
        ([0.0, 0.0], "sample_weight must be above 0 for added rows, got 0.0 in row 0"),
    ],
)
def test_wrong_weights_are_not_added(weights, message):
    reg = nona().fit(X, y)
    bank = reg.bank_
    with pytest.raises(ValueError, match=message):
        reg.add_neighbors(X_test[:2], y_test[:2], sample_weight=weights)
    assert reg.bank_ is bank


def test_rows_and_groups_that_are_left_must_do():
    weights = np.where(np.arange(60) < 30, 1, 0)
    with pytest.raises(ValueError, match=r"groups must hold at least 2 different ones, .* in 0$"):
        nona().fit(X, y, groups=np.arange(60) // 30, sample_weight=weights)
    with pytest.raises(ValueError, match="groups must have a value for each of 60 rows, got 30"):
        nona().fit(X, y, groups=np.arange(30), sample_weight=weights)
    with pytest.raises(ValueError, match="X has 60, y has 30"):
        nona().fit(X, y[:30], sample_weight=weights)
    with pytest.raises(ValueError, match=r"validation_fraction=0\.5 of n_samples=3"):
        nona(validation_fraction=0.5).fit(X, y, sample_weight=[1, 2, 3, *[0] * 57])


# -- within scikit-learn ------------------------------------------------------------------------


def test_scores_are_weighted():
    weights = np.where(np.arange(60) % 4, WEIGHTS, 0)
    kept = weights > 0
    reg = nona().fit(X, y, sample_weight=weights)
    assert reg.score(X, y, weights) == pytest.approx(
        r2_score(y, reg.predict(X), sample_weight=weights)
    )
    assert reg.score(None, y[kept], weights[kept]) == pytest.approx(
        r2_score(y[kept], reg.predict(None), sample_weight=weights[kept])
    )


@pytest.mark.slow
def test_weights_are_routed():
    with config_context(enable_metadata_routing=True):
        reg = nona().set_fit_request(sample_weight=True, groups=True)
        reg.set_score_request(sample_weight=True)
        groups = np.arange(60) // 2
        search = GridSearchCV(reg, {"embedding_dim": [2, 4]}, cv=2, error_score="raise")
        search.fit(X, y, sample_weight=WEIGHTS, groups=groups)
        found = cross_validate(
            reg, X, y, params={"sample_weight": WEIGHTS, "groups": groups}, error_score="raise"
        )
    best = nona(**search.best_params_).fit(X, y, groups=groups, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(search.predict(X_test), best.predict(X_test))
    assert len(found["test_score"]) == 5


@pytest.mark.parametrize("estimator", [nona(), softstep_knn()], ids=name_of)
def test_bagging_passes_its_draws_as_weights(estimator):
    bagged = BaggingRegressor(estimator, n_estimators=3, random_state=0).fit(X, y)
    for reg, rows in zip(bagged.estimators_, bagged.estimators_samples_, strict=True):
        counts = np.bincount(rows, minlength=60)
        np.testing.assert_array_equal(reg.bank_.ids, np.flatnonzero(counts))
        prior = reg.bank_.neighbors.log_prior
        expected = np.log(counts[counts > 0] / counts.max())
        np.testing.assert_allclose(prior - prior.max(), expected, rtol=1e-5, atol=1e-6)
    assert bagged.score(X_test, y_test) > DummyRegressor().fit(X, y).score(X_test, y_test)


# -- counts with an exposure ---------------------------------------------------------------------


def of_rates(counts, exposure, X, sample_weight=None, n_neighbors=8):
    knn = softstep_knn(
        n_neighbors=n_neighbors, weighting="uniform", learn_feature_weights=False, trend=None
    )
    return knn.fit(X, counts / exposure, sample_weight=sample_weight)


def test_a_rate_weighted_by_its_exposure_is_a_sum_of_counts_over_a_sum_of_exposures():
    X, counts = np.arange(6.0)[:, None], np.array([3.0, 0, 5, 7, 1, 2])
    exposure, weight = np.array([10.0, 2, 5, 1, 3, 8]), np.array([1.0, 2, 1, 1, 3, 1])
    rates = of_rates(counts, exposure, X, weight * exposure, n_neighbors=3)
    for first in (0, 3):
        rows = slice(first, first + 3)
        expected = weight[rows] @ counts[rows] / (weight[rows] @ exposure[rows])
        np.testing.assert_allclose(rates.predict(X[first + 1 :][:1]), expected, rtol=1e-6)


def test_rates_weighted_by_their_exposure_predict_counts_better():
    rng = np.random.RandomState(0)
    X, exposure = rng.normal(size=(1000, 1)), rng.gamma(0.5, 10, size=1000) + 0.1
    counts = rng.poisson(exposure * np.exp(X[:, 0] / 2 - 1))
    train, test = slice(0, 700), slice(700, None)

    def deviance(predictions):
        return mean_poisson_deviance(counts[test], predictions.clip(1e-3))

    part = counts[train], exposure[train], X[train]
    weighted = deviance(of_rates(*part, exposure[train]).predict(X[test]) * exposure[test])
    equal = deviance(of_rates(*part).predict(X[test]) * exposure[test])
    without = of_rates(counts[train], 1.0, X[train]).predict(X[test])
    assert weighted < 0.9 * equal < 0.5 * deviance(without)
