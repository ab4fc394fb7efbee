from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.data import Sample
from inner.inference import Evaluation, LabelExclusion, Neighbors
from inner.network import NeighborNetwork
from inner.training import (
    NEIGHBOR_POOLS,
    STEPS,
    STEPS_OF_CLASSES,
    NearBatches,
    NearPool,
    NONANet,
    RowBatches,
    TrainingConfig,
    count_networks,
    count_parts,
    how_many,
    loop,
    net,
    refine,
    refinement,
    resolve_batch_size,
    train_network,
)
from skorch.callbacks import Callback
from torch import nn
from torch.utils.data import TensorDataset

from nona_sklearn import (
    FeatureExtractor,
    MLPEmbedding,
    NONAClassifier,
    NONAHead,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)
from nona_sklearn.attention.head import TEMPERATURE_MULTIPLES, TRUST_FACTOR
from nona_sklearn.losses import ASSoftmaxLoss, LogLoss
from nona_sklearn.softstep import STEP_MULTIPLES

POOLS = pytest.mark.parametrize("neighbor_pool", NEIGHBOR_POOLS)
ADJUSTED = pytest.mark.parametrize("n_adjusted", [0, 1], ids=["plain", "adjusted"])


def make_network(step=None, n_adjusted=0):
    torch.manual_seed(0)
    head = NONAHead(step=step, learn_temperature=True, n_adjusted=n_adjusted)
    return NeighborNetwork(MLPEmbedding(2, 3 + n_adjusted, (8,)), head)


def make_data(n=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=generator)
    return X, (X[:, 0] * 2).sin() + X[:, 1]


def rows_of(targets, y):
    """Row numbers of targets, no two of which are equal."""
    return (targets[:, None] == y).nonzero()[:, 1]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def train(network, train, valid=None, **kwargs):
    settings = {
        "neighbor_pool": "dataset",
        "pool_size": 20,
        "batch_size": 16,
        "learning_rate_init": 0.01,
        "weight_decay": 0.0,
        "max_iter": 5,
        "n_iter_no_change": 5,
        "verbose": 0,
        "device": torch.device("cpu"),
    }
    sample = Sample(*train, groups=kwargs.pop("groups", None))
    config = TrainingConfig(**{**settings, **kwargs})
    valid = None if valid is None else Sample(*valid)
    trained, history = train_network(network, sample, valid, config, seed=0)
    assert trained is network
    return history


@POOLS
@ADJUSTED
@pytest.mark.parametrize("step", [None, "s1", "s2"])
def test_no_row_is_predicted_from_its_own_target(neighbor_pool, step, n_adjusted):
    """The prediction of a query must not change with the query's own target."""
    X, y = make_data(12)
    X[1] = X[0]  # a twin: excluded rows are known by identity, not by their features
    y.requires_grad_()
    net = NONANet(
        make_network(step and SoftStep(step), n_adjusted),
        pool=NEIGHBOR_POOLS[neighbor_pool](X, y, 12, generator()),
        criterion=nn.MSELoss,
    ).initialize()
    rows = torch.tensor([7, 0, 3, 1, 11])  # not in order: positions are not ids
    for _ in range(2):  # the second step has a memory that the first one refreshed
        predictions = net.infer(rows)
    for prediction, row in zip(predictions, rows, strict=True):
        (influence,) = torch.autograd.grad(prediction, y, retain_graph=True)
        assert influence[row] == 0
        assert influence.abs().sum() > 0.5
        if row == 0:
            assert influence[1] > 0


@pytest.mark.parametrize("n", [5, 40, 257])
def test_cells_divide_the_rows(n, monkeypatch):
    monkeypatch.setattr(net, "CELL", 8)
    X, y = make_data(n)
    cells = NearPool(X, y, n, generator()).cells(make_network())
    assert torch.cat(cells).sort().values.tolist() == list(range(n))
    assert all(min(n, 8) <= len(cell) <= 16 for cell in cells)


def test_rows_of_a_cell_are_near(monkeypatch):
    """Their distances are less than half of those of all rows."""
    monkeypatch.setattr(net, "CELL", 8)
    X, y = make_data(512)
    network = make_network()
    z = network.embed(X)
    cells = NearPool(X, y, 512, generator()).cells(network)
    within = torch.stack([torch.cdist(z[cell], z[cell]).mean() for cell in cells]).mean()
    assert within < torch.cdist(z, z).mean() / 2


def test_all_rows_are_in_a_batch_before_any_is_again(monkeypatch):
    monkeypatch.setattr(net, "CELL", 8)
    X, y = make_data(128)
    pool = NearPool(X, y, 128, generator())
    batches = NearBatches(
        TensorDataset(torch.arange(128), y), 32, generator(), 64, pool=pool, network=make_network()
    )
    epochs = [[rows for rows, _ in batches] for _ in range(4)]
    assert all(len(epoch) == 2 for epoch in epochs)
    for both in (epochs[0] + epochs[1], epochs[2] + epochs[3]):
        assert torch.cat(both).sort().values.tolist() == list(range(128))
    rows, targets = next(iter(batches))
    assert torch.equal(targets, y[rows])


def test_the_learning_rate_decreases_to_zero_by_half_a_cosine():
    rates = []

    class Recorder(Callback):
        def on_batch_begin(self, net, training, **_):
            if training:
                rates.append(net.optimizer_.param_groups[0]["lr"])

    history = train(
        make_network(), make_data(64), max_iter=9, n_scheduled=3, callbacks=[Recorder()]
    )
    assert len(rates) == 3 * 4
    expected = 0.01 * (1 + np.cos(np.pi * np.arange(12) / 12)) / 2
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    assert len(history) == 3
    assert history[-1]["stopped"] == "schedule"
    history = train(make_network(), make_data(64), max_iter=2, n_scheduled=3)
    assert history[-1]["stopped"] == "max_iter"


@pytest.mark.slow
@POOLS
@ADJUSTED
def test_noise_cannot_be_learned(neighbor_pool, n_adjusted):
    """With a leak, each row would find its own random target: the loss would go to 0."""
    X, _ = make_data(200)
    y = torch.randn(200, generator=generator(1))
    y = (y - y.mean()) / y.std()
    history = train(
        make_network(n_adjusted=n_adjusted),
        (X, y),
        neighbor_pool=neighbor_pool,
        pool_size=200,
        batch_size=64,
        max_iter=40,
        n_iter_no_change=40,
    )
    assert min(epoch["train_loss"] for epoch in history) > 0.5


def test_dataset_pool_is_the_batch_and_other_rows_without_replacement():
    X, y = make_data(50)
    pool, network = NEIGHBOR_POOLS["dataset"](X, y, 20, generator()), make_network()
    rows = torch.tensor([7, 3, 9])
    evaluation = pool.evaluate(network, rows)
    first = rows_of(evaluation.neighbors.values, y)
    second = rows_of(pool.evaluate(network, rows).neighbors.values, y)
    assert len(first.unique()) == len(second.unique()) == len(evaluation.neighbors) == 20
    assert torch.equal(
        evaluation.exclusion.queries[:, None] == evaluation.exclusion.neighbors,
        rows[:, None] == first,
    )
    assert torch.equal(first[:3], rows)
    assert not torch.equal(first, second)
    torch.testing.assert_close(evaluation.query, network.embedding(X[rows]))
    torch.testing.assert_close(evaluation.neighbors.embeddings, network.embedding(X[first]))


def test_every_row_may_be_drawn():
    X, y = make_data(12)
    pool, rows = NEIGHBOR_POOLS["dataset"](X, y, 6, generator()), torch.tensor([0, 5])
    drawn = {row for _ in range(50) for row in pool.draw(rows).tolist()}
    assert drawn == set(range(12)) - {0, 5}


def test_a_pool_is_as_large_at_each_step():
    X, y = make_data(30)
    pool, network = NEIGHBOR_POOLS["dataset"](X, y, 20, generator()), make_network()
    for start in range(0, 30, 3):
        queries = torch.arange(start, start + 3)
        assert len(pool.evaluate(network, queries).neighbors) in (20, 19, 18, 17)
    assert not pool.is_query.any()


def test_a_pool_larger_than_the_data_is_all_rows():
    X, y = make_data(7)
    pool = NEIGHBOR_POOLS["dataset"](X, y, 20, generator())
    targets = pool.evaluate(make_network(), torch.tensor([4, 2])).neighbors.values
    assert sorted(rows_of(targets, y).tolist()) == list(range(7))


def test_a_pool_smaller_than_the_batch_is_the_batch():
    X, y = make_data(7)
    pool, rows = NEIGHBOR_POOLS["dataset"](X, y, 2, generator()), torch.tensor([4, 2, 0])
    targets = pool.evaluate(make_network(), rows).neighbors.values
    assert torch.equal(targets, y[rows])


def test_batch_pool_is_the_batch():
    X, y = make_data(9)
    network, rows = make_network(), torch.tensor([4, 2, 8])
    pool = NEIGHBOR_POOLS["batch"](X, y, 20, generator())
    evaluation = pool.evaluate(network, rows)
    assert torch.equal(evaluation.neighbors.values, y[rows])
    assert torch.equal(evaluation.query, evaluation.neighbors.embeddings)
    torch.testing.assert_close(evaluation.query, network.embedding(X[rows]))


def test_dataset_pool_trains_its_neighbours_and_memory_does_not():
    X, y = make_data(9)
    network = make_network()
    for name, with_gradient in (("dataset", True), ("memory", False)):
        pool = NEIGHBOR_POOLS[name](X, y, 9, generator())
        neighbors = pool.evaluate(network, torch.arange(3)).neighbors
        assert neighbors.embeddings.requires_grad == with_gradient


def test_a_step_refreshes_the_memory_of_its_batch_only():
    X, y = make_data(9)
    network = make_network()
    pool = NEIGHBOR_POOLS["memory"](X, y, 9, generator())
    before = network.embed(X)
    rows = torch.tensor([0, 1, 2])
    pool.evaluate(network, rows)
    with torch.no_grad():
        network.embedding.layers[-1].bias += 1.0
    stored = pool.evaluate(network, rows).neighbors
    ids = rows_of(stored.values, y)
    torch.testing.assert_close(stored.embeddings, before[ids])  # before this batch
    stored = pool.evaluate(network, rows).neighbors
    ids = rows_of(stored.values, y)
    moved = before[ids] + (ids < 3).float()[:, None]
    torch.testing.assert_close(stored.embeddings, moved)


def test_validation_refreshes_the_whole_memory():
    X, y = make_data(9)
    network = make_network()
    pool = NEIGHBOR_POOLS["memory"](X, y, 5, generator())
    pool.evaluate(network, torch.tensor([0, 1, 2]))
    with torch.no_grad():
        network.embedding.layers[-1].bias += 1.0
    neighbors = pool.neighbors(network)
    torch.testing.assert_close(neighbors.embeddings, network.embed(X[:5]))
    torch.testing.assert_close(pool.memory, network.embed(X))


@pytest.mark.parametrize(
    ("n", "batch_size", "sizes"),
    [
        (10, 4, [4, 4, 2]),
        (9, 4, [4, 5]),  # a row by itself joins the batch before it
        (8, 4, [4, 4]),
        (3, 4, [3]),
    ],
)
def test_batches_hold_each_row_once(n, batch_size, sizes):
    X, y = make_data(n)
    batches = list(RowBatches(TensorDataset(X, y), batch_size, generator()))
    assert [len(rows) for rows, _ in batches] == sizes
    assert sorted(torch.cat([rows for rows, _ in batches]).tolist()) == list(range(n))
    for rows, targets in batches:
        assert torch.equal(targets, y[rows])


@pytest.mark.parametrize(("n", "batch_size"), [(30, 8), (31, 8), (25, 8), (26, 8), (3, 8)])
def test_processes_share_each_batch(n, batch_size):
    data = TensorDataset(*make_data(n))
    shares = [list(RowBatches(data, batch_size, generator(), None, i, 3)) for i in range(3)]
    seen = torch.cat([rows for share in shares for rows, _ in share])
    assert len(seen.unique()) == len(seen) > n - 3 * len(shares[0])
    for parts in zip(*shares, strict=True):
        assert len({len(rows) for rows, _ in parts}) == 1
        assert len(parts[0][0]) > 0


def test_batches_are_shuffled_anew_each_epoch():
    batches = RowBatches(TensorDataset(*make_data(30)), 30, generator())
    (first, _), (second, _) = next(iter(batches)), next(iter(batches))
    assert not torch.equal(first, second)


def test_rows_are_embedded_in_eval_mode():
    network = NeighborNetwork(nn.Dropout(0.5), NONAHead())
    X, _ = make_data(9)
    network.train()
    assert torch.equal(network.embed(X), X)
    assert network.training


@POOLS
@ADJUSTED
@pytest.mark.parametrize("pool_size", [5, 100])
def test_validation_is_scored_as_predict_works(neighbor_pool, pool_size, n_adjusted):
    """Against the same training rows each time, as many as the pool may hold."""
    X, y = make_data()
    X_valid, y_valid = make_data(15, seed=1)
    network = make_network(n_adjusted=n_adjusted)
    history = train(
        network,
        (X, y),
        (X_valid, y_valid),
        neighbor_pool=neighbor_pool,
        pool_size=pool_size,
        max_iter=1,
    )
    if n_adjusted:
        network.head.trust_radius.fill_(np.inf)  # which is fitted after training
    neighbors = Neighbors(network.embed(X)[:pool_size], y[:pool_size])
    evaluation = Evaluation(network.head, neighbors, network.embed(X_valid))
    refined = network.head.log_temperature.clone()
    losses = []
    for multiple in TEMPERATURE_MULTIPLES:
        network.head.log_temperature.data = refined - np.log(multiple)
        losses.append((evaluation.mean() - y_valid).square().mean().item())
    assert np.isclose(losses, history[0]["valid_loss"], rtol=1e-5).sum() == 1


def best_of(tensor, candidates, evaluation, truth):
    """The candidate of a head's tensor that predicts best; it stays."""
    losses = []
    for candidate in candidates:
        tensor.data.fill_(candidate)
        losses.append((evaluation.mean() - truth).square().mean().item())
    best = candidates[int(np.argmin(losses))]
    tensor.data.fill_(best)
    return best


@ADJUSTED
@pytest.mark.parametrize("step", [None, "s1", "s2"])
def test_step_and_temperature_are_refined_on_the_whole_bank(step, n_adjusted):
    """The best multiples of those learned stay, the step's first; nothing else changes."""
    X, y = make_data(60)
    X_valid, y_valid = make_data(30, seed=1)
    network = make_network(step and SoftStep(step), n_adjusted)
    head = network.head
    head.log_temperature.data.fill_(0.3)
    changed = {"head.log_temperature"}
    if step is not None:
        head.step.narrowing.fill_(0.8)
        changed.add("head.step.narrowing")
    learned = {name: value.clone() for name, value in network.state_dict().items()}
    evaluation = Evaluation(head, Neighbors(network.embed(X), y), network.embed(X_valid))
    if step is not None:
        narrowings = [0.8 * multiple for multiple in STEP_MULTIPLES]
        narrowing = best_of(head.step.narrowing, narrowings, evaluation, y_valid)
    temperatures = [0.3 + np.log(multiple) for multiple in TEMPERATURE_MULTIPLES]
    log_temperature = best_of(head.log_temperature, temperatures, evaluation, y_valid)

    network.load_state_dict(learned)
    refine(evaluation, nn.MSELoss(), y_valid)
    assert head.log_temperature.item() == pytest.approx(log_temperature, rel=1e-6)
    if step is not None:
        assert head.step.narrowing.item() == pytest.approx(narrowing, rel=1e-6)
    for name, value in network.state_dict().items():
        assert name in changed or torch.equal(value, learned[name])


@pytest.mark.parametrize("pool_size", [20, 60])
def test_training_rows_refine_what_depends_on_the_size_of_the_bank(pool_size):
    """Each without itself, with refine_on_training, where there are no validation rows."""
    X, y = make_data(60)
    plain, refined = make_network(SoftStep("s1")), make_network(SoftStep("s1"))
    train(plain, (X, y), pool_size=pool_size)
    train(refined, (X, y), pool_size=pool_size, refine_on_training=True)
    assert torch.equal(refined.embed(X), plain.embed(X))
    if pool_size < 60:
        rows, head = torch.arange(60), plain.head
        neighbors = Neighbors(plain.embed(X), y)
        evaluation = Evaluation(head, neighbors, neighbors.embeddings, LabelExclusion(rows, rows))
        best_of(head.step.narrowing, STEP_MULTIPLES, evaluation, y)
        learned = head.log_temperature.item()
        temperatures = [learned + np.log(multiple) for multiple in TEMPERATURE_MULTIPLES]
        best_of(head.log_temperature, temperatures, evaluation, y)
        assert head.step.narrowing < 1  # else nothing would be refined
    torch.testing.assert_close(refined.head.state_dict(), plain.head.state_dict())


def test_how_many_rows_are_evaluated_on_paper():
    """2^24 pairs of rows that were held out, 2^22 of the bank's own; at least 256 rows."""
    assert (how_many(2**10, held_out=True), how_many(2**10, held_out=False)) == (2**14, 2**12)
    assert how_many(3 * 2**14, held_out=True) == 341  # and a third
    assert how_many(2**30, held_out=True) == how_many(2**30, held_out=False) == 256


@pytest.mark.parametrize("held_out", [True, False])
def test_refined_rows_keep_their_targets_and_weights(held_out, monkeypatch):
    """Of more rows than are evaluated, with validation rows or on training rows."""
    X, y = make_data(60)
    X_valid, y_valid = make_data(30, seed=1)
    given = (X, y, torch.linspace(1, 9, 60).log())
    valid = (X_valid, y_valid, torch.linspace(5, 1, 30).log()) if held_out else None
    for name in ("REFINE_ENTRIES", "ALONE_ENTRIES"):
        monkeypatch.setattr(refinement, name, 60 * 7)
    monkeypatch.setattr(refinement, "LEAST_EVALUATED", 1)
    seen, network = [], make_network()
    monkeypatch.setattr(refinement, "refine", lambda *arguments, **_: seen.append(arguments))
    train(network, given, valid, refine_on_training=not held_out)
    [(evaluation, _, values, weights)] = seen
    X, y, log_prior = valid if held_out else given
    rows = rows_of(values, y)
    assert len(rows) == len(evaluation) == 7
    torch.testing.assert_close(evaluation.query, network.embed(X[rows]))
    # The mean weight of all rows is 1, not that of the rows evaluated.
    torch.testing.assert_close(weights / weights.sum(), log_prior[rows].softmax(dim=0))


def test_the_network_is_refined_beside_the_rows_that_it_will_predict_from(monkeypatch):
    """The first ones, which are random, where there will be sources."""
    seen, network, given = [], make_network(), make_data(60)
    monkeypatch.setattr(refinement, "refine", lambda *arguments, **_: seen.append(arguments[0]))
    train(network, given, make_data(30, seed=1), n_sources=20)
    [evaluation] = seen
    torch.testing.assert_close(evaluation.neighbors.embeddings, network.embed(given[0][:20]))
    torch.testing.assert_close(evaluation.neighbors.columns[:, 0].float(), given[1][:20])


def test_the_reach_is_that_of_other_groups():
    """Without validation rows: the rows of a group are no measure of how far new groups are."""
    X, y = make_data(20)
    X = torch.cat([X, X + 1e-3])
    groups = torch.arange(20).repeat(2)
    network = make_network(n_adjusted=1)
    train(network, (X, torch.cat([y, y])), groups=groups)
    z = network.head.metric_part(network.embed(X))
    assert z.shape == (40, 3)
    distance = torch.cdist(z, z).masked_fill(groups[:, None] == groups, np.inf).amin(dim=1)
    torch.testing.assert_close(
        network.head.trust_radius, TRUST_FACTOR * distance.max(), rtol=1e-4, atol=0
    )


def test_an_epoch_of_many_rows_takes_some_of_them_anew():
    dataset = TensorDataset(torch.arange(100), torch.arange(100.0))
    batches = RowBatches(dataset, 10, generator(), n_rows=35)
    epochs = [list(batches) for _ in range(2)]
    first, second = (torch.cat([rows for rows, _ in epoch]) for epoch in epochs)
    assert [len(rows) for rows, _ in epochs[0]] == [10, 10, 10, 5]
    assert len(first.unique()) == len(second.unique()) == 35
    assert set(first.tolist()) != set(second.tolist())


@pytest.mark.parametrize(("extracts", "n_seen"), [(False, 8), (True, 40)])
def test_with_an_extractor_an_epoch_takes_all_rows(monkeypatch, extracts, n_seen):
    """Its epochs are long, and users count in them."""
    monkeypatch.setattr(loop, "EPOCH_ROWS", 8)
    rows, taken = [], RowBatches.__iter__

    def spy(self):
        for batch in taken(self):
            rows.append(len(batch[0]))
            yield batch

    monkeypatch.setattr(RowBatches, "__iter__", spy)
    rate = {"extractor": FeatureExtractor(nn.Identity) if extracts else None}
    train(make_network(), make_data(40), max_iter=1, batch_size=4, **rate)
    assert sum(rows) == n_seen


def test_some_validation_rows_judge_an_epoch_and_all_refine_the_network(monkeypatch):
    judged, refined = [], []
    validate, evaluate = NONANet.validation_step, refinement.evaluate_on_bank

    def spy_on_epochs(self, batch, **params):
        judged.append(len(batch[0]))
        return validate(self, batch, **params)

    def spy_on_refinement(network, pool, train, valid, *given):
        refined.append(len(valid))
        return evaluate(network, pool, train, valid, *given)

    monkeypatch.setattr(NONANet, "validation_step", spy_on_epochs)
    monkeypatch.setattr(refinement, "evaluate_on_bank", spy_on_refinement)
    monkeypatch.setattr(loop, "JUDGED_ROWS", 5)
    weighted = [(*make_data(n), torch.zeros(n)) for n in (40, 20)]
    for train_rows, valid in [(make_data(40), make_data(20)), weighted]:
        train(make_network(), train_rows, valid, max_iter=2)
    assert judged == [5] * 4
    assert refined == [20] * 2


def test_large_tables_have_a_recipe_of_their_own():
    """Where a parameter is 'auto', and without a feature extractor, whose rows are costly."""

    def recipe(n_rows, kind=NONARegressor, **settings):
        config = kind(**settings)._architecture().config(n_rows)
        epochs = config.n_epochs, config.n_iter_no_change
        return config.neighbor_pool, config.pool_size, config.learning_rate_init, epochs

    few, many = 2**16, 2**16 + 1
    assert recipe(few) == ("dataset", 2048, 0.02, (200, 9))
    assert recipe(many) == ("near", 4096, 0.01, (16, 16))
    assert recipe(many, NONAClassifier) == ("near", 4096, 0.01, (16, 16))
    assert recipe(120_000)[3] == (19, 19)  # ten passes, the last of which may end early
    assert recipe(10**7)[3] == (200, 200)
    assert recipe(many, max_iter=5) == ("near", 4096, 0.01, (5, 16))
    options = {"pool_size": 50, "learning_rate_init": 0.5, "neighbor_pool": "batch"}
    training = TrainingOptions(**options, learning_rate="constant")
    assert recipe(many, training=training) == ("batch", 50, 0.5, (200, 24))
    training = TrainingOptions(learning_rate="cosine", n_iter_no_change=4)
    assert recipe(few, training=training, max_iter=30) == ("dataset", 2048, 0.02, (30, 4))
    for n in (few, many):
        assert recipe(n, feature_extractor=nn.Identity) == ("batch", 2048, 0.01, (200, 10))


def test_batch_size_follows_the_rows():
    of_tables, of_classes, of_extractors = (
        [resolve_batch_size("auto", n, *of) for n in (2, 300, 1000, 2000, 60_000, 1_000_000)]
        for of in ((), (STEPS_OF_CLASSES,), (STEPS, True))
    )
    assert of_tables == [32, 64, 256, 512, 512, 1024]
    assert of_classes == [32, 32, 128, 256, 512, 1024]
    of_each = [kind()._architecture().config(500) for kind in (NONARegressor, NONAClassifier)]
    assert [config.n_steps for config in of_each] == [STEPS, STEPS_OF_CLASSES]
    assert of_extractors == [32, 32, 64, 128, 256, 256]
    assert resolve_batch_size(7, 1_000_000) == 7


def test_the_best_epoch_is_restored():
    X, y = make_data(60)
    valid = make_data(20, seed=1)
    network = make_network()
    # All rows are neighbours in validation, too: then only the temperature is refined after.
    history = train(network, (X, y), valid, learning_rate_init=0.3, max_iter=30, pool_size=60)
    losses = [epoch["valid_loss"] for epoch in history]
    assert len(history) < 30  # stopped early
    assert losses[-1] > min(losses)
    evaluation = Evaluation(network.head, Neighbors(network.embed(X), y), network.embed(valid[0]))
    refined, restored = network.head.log_temperature.clone(), []
    for multiple in TEMPERATURE_MULTIPLES:
        network.head.log_temperature.data = refined - np.log(multiple)
        restored.append((evaluation.mean() - valid[1]).square().mean().item())
    assert np.isclose(restored, min(losses), rtol=1e-3).any()


def look_at_gradients(patch):
    """The norms of the gradients that each step takes: AdamW hides their scale."""
    norms = []

    class Spy(loop.QuietAdamW):
        def step(self, closure=None):
            loss = closure()
            grads = [p.grad for group in self.param_groups for p in group["params"]]
            norms.append(torch.cat([g.flatten() for g in grads if g is not None]).norm().item())
            return loss

    patch.setattr(loop, "QuietAdamW", Spy)
    return norms


def test_gradients_are_clipped(monkeypatch):
    norms = look_at_gradients(monkeypatch)
    X, y = make_data(60)
    train(make_network(), (X, 1e4 * y))
    assert len(norms) > 5
    np.testing.assert_allclose(norms, 1.0, rtol=1e-3)


@pytest.mark.slow
@ADJUSTED
def test_training_improves_the_loss(n_adjusted):
    X, y = make_data(200)
    network = make_network(n_adjusted=n_adjusted)
    history = train(network, (X, y), max_iter=30, n_iter_no_change=30)
    assert history[-1]["train_loss"] < 0.5 * history[0]["train_loss"]


def test_history_has_no_batches_and_gradients_are_gone():
    network = make_network()
    history = train(network, make_data(), make_data(9, seed=1))
    assert [epoch["epoch"] for epoch in history] == [1, 2, 3, 4, 5]
    assert {"train_loss", "valid_loss", "dur"} <= set(history[0])
    assert "batches" not in history[0]
    assert all(weight.grad is None for weight in network.parameters())


def test_divergence_is_an_error():
    X, y = make_data()
    with pytest.raises(ValueError, match=r"diverged with learning_rate_init=1e\+30"):
        train(make_network(), (X, y), learning_rate_init=1e30)


@pytest.mark.parametrize(
    "params", [{"learning_rate_init": 1000.0}, {"learning_rate_init": 20.0}, {"weight_decay": 1e3}]
)
def test_divergence_of_a_step_on_ranks_is_the_same_error(params, plane):
    options = TrainingOptions(**params)
    knn = SoftStepKNeighborsRegressor(max_iter=20, random_state=0, training=options)
    before = vars(knn).copy()
    with pytest.raises(ValueError, match=r"diverged with learning_rate_init=.* weight_decay="):
        knn.fit(plane[0], plane[2])
    assert vars(knn) == before


def test_the_head_is_not_decayed():
    network = make_network()
    X = torch.zeros(10, 2)  # no gradient can move the temperature: all distances are 0
    network.head.log_temperature.data.fill_(1.0)
    weight = network.embedding.layers[0].weight.detach().clone()
    train(network, (X, torch.randn(10)), weight_decay=1.0)
    assert network.head.log_temperature == 1.0
    assert network.embedding.layers[0].weight.abs().sum() < weight.abs().sum()


@pytest.mark.parametrize(
    ("n", "expected"), [(10, 5), (2000, 5), (2500, 4), (2501, 3), (2**16, 3), (2**16 + 1, 1)]
)
def test_few_rows_get_more_networks(n, expected):
    assert count_networks(n) == expected


@given(st.integers(1, 40), st.integers(1, 9))
def test_parts_of_a_batch_are_no_single_rows(n, micro_batch_size):
    """A row by itself has no neighbour in its batch, and nothing to normalise over."""
    parts = torch.arange(n).tensor_split(count_parts(n, micro_batch_size))
    assert torch.equal(torch.cat(parts), torch.arange(n))
    lengths = {len(part) for part in parts}
    if micro_batch_size == 1:
        assert lengths == {1}
    else:
        assert min(lengths) >= min(2, n)
        assert max(lengths) <= micro_batch_size + (micro_batch_size == 2)


def test_each_network_starts_from_a_fresh_copy_of_the_callbacks(plane):
    """A callback may count on itself: the user's own object stays as it was."""
    counts = []

    class CountEpochs(Callback):
        def __init__(self):
            self.n_epochs = 0

        def on_epoch_end(self, net, **kwargs):
            self.n_epochs += 1
            counts.append(self.n_epochs)

    callback = CountEpochs()
    reg = NONARegressor(
        n_estimators=2, max_iter=3, random_state=0, training=TrainingOptions(callbacks=[callback])
    )
    reg.fit(plane[0], plane[2])
    assert counts == [1, 2, 3, 1, 2, 3]
    assert reg.training.callbacks == [callback]
    assert callback.n_epochs == 0


def accelerated(accelerator):
    """The accelerator, which belongs to an extractor; the network has none."""
    return FeatureExtractor(nn.Identity, accelerator=accelerator) if accelerator else None


def make_accelerator():
    return pytest.importorskip("accelerate").Accelerator(cpu=True)


ACCELERATORS = pytest.mark.parametrize(
    "accelerator", [None, make_accelerator], ids=["plain", "accelerated"]
)


def test_a_step_of_several_parts_takes_their_mean_gradient():
    """In a pool of all rows, the parts of a step are as good as one large batch."""
    X, y = make_data(32)
    gradients = []
    for micro_batch_size in (16, None):
        network = make_network()
        net = NONANet(
            network,
            pool=NEIGHBOR_POOLS["dataset"](X, y, 32, generator()),
            criterion=nn.MSELoss,
            micro_batch_size=micro_batch_size,
        ).initialize()
        net.train_step_single((torch.arange(32), y))
        gradients.append([weight.grad for weight in network.parameters()])
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


class Watched(nn.MSELoss):
    """Notes in which mode it was, and whether it was to be learned from."""

    modes: set = set()

    def forward(self, prediction, truth):
        self.modes.add((self.training, prediction.requires_grad))
        return super().forward(prediction, truth)


@ACCELERATORS
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_is_in_the_mode_of_training_or_evaluation(accelerator, weighted):
    """Epochs, step and temperature are judged in eval mode."""
    X, y = make_data(60)
    data = (X, y, torch.linspace(-1, 0, 60)) if weighted else (X, y)
    for valid, modes in (
        (tuple(each[:20] for each in data), {(True, True), (False, False)}),
        (None, {(True, True)}),
    ):
        Watched.modes.clear()
        extractor = accelerated(accelerator)
        train(make_network(), data, valid, loss=Watched, extractor=extractor, max_iter=2)
        assert Watched.modes == modes
    Watched.modes.clear()
    train(make_network(), data, loss=Watched, max_iter=1, refine_on_training=True)
    assert Watched.modes == {(True, True), (False, False)}


def test_as_softmax_is_judged_by_the_log_loss():
    """It trains by its own loss; its epochs and its temperature are those of the log loss."""
    (X, y), (X_valid, y_valid) = make_data(60), make_data(30, seed=1)
    truth, truth_valid = (nn.functional.one_hot((t > 0).long()).float() for t in (y, y_valid))
    network = make_network()
    (epoch,) = train(
        *(network, (X, truth), (X_valid, truth_valid)),
        loss=partial(ASSoftmaxLoss, margin=0.1),
        pool_size=60,
        max_iter=1,
    )
    evaluation = Evaluation(
        network.head, Neighbors(network.embed(X), truth), network.embed(X_valid)
    )
    chosen = evaluation.head.log_temperature.clone()
    assert LogLoss()(evaluation.mean(), truth_valid) < epoch["valid_loss"] + 1e-6
    losses = []
    for multiple in TEMPERATURE_MULTIPLES:
        network.head.log_temperature.data = chosen - np.log(multiple)
        losses.append(LogLoss()(evaluation.mean(), truth_valid).item())
    assert np.isclose(losses, epoch["valid_loss"], rtol=1e-5).sum() == 1
    assert ASSoftmaxLoss()(evaluation.mean(), truth_valid) < 0.9 * LogLoss()(
        evaluation.mean(), truth_valid
    )
