"""Fine-tuning a feature extractor through the estimator."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from inner.network import ExtractorEmbedding, NeighborNetwork
from inner.training import NEIGHBOR_POOLS, loop
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import get_tags
from skorch.callbacks import Callback, EpochScoring, Freezer, LRScheduler, Unfreezer
from torch import nn
from torch.utils.data import Dataset

from nona_sklearn import FeatureExtractor, NONARegressor, Rows, TrainingOptions
from nona_sklearn.attention import NONAHead
from nona_sklearn.embedding import MLPEmbedding

WORDS = ["good", "fine", "bad", "poor", "book", "film", "very", "not"]
WORTH = np.array([1.0, 0.7, -1.0, -0.8, 0.0, 0.1, 0.3, -0.5])


def make_images(n=90, seed=0):
    """Images of a bar at some angle's height: the target is where the bar is."""
    rng = np.random.default_rng(seed)
    y = rng.uniform(1, 6, n)
    rows = np.arange(8)[:, None]
    bars = np.exp(-((rows - y[:, None, None]) ** 2))
    return (np.tile(bars, 8) + 0.1 * rng.normal(size=(n, 8, 8))).astype(np.float32)[:, None], y


def make_texts(n=90, seed=0):
    rng = np.random.default_rng(seed)
    words = [rng.integers(len(WORDS), size=rng.integers(1, 5)) for _ in range(n)]
    texts = [" ".join(WORDS[i] for i in row) for row in words]
    return texts, np.array([WORTH[row].mean() for row in words])


def tokenize(texts):
    rows = [torch.tensor([1 + WORDS.index(word) for word in text.split()]) for text in texts]
    return {"tokens": nn.utils.rnn.pad_sequence(rows, batch_first=True)}


class WordBag(nn.Module):
    """Mean of the words' vectors; counts the rows that it has seen."""

    def __init__(self, dim=6):
        super().__init__()
        self.vectors = nn.Embedding(1 + len(WORDS), dim, padding_idx=0)
        self.n_rows = 0

    def forward(self, tokens):
        self.n_rows += len(tokens)
        known = (tokens > 0).sum(dim=1, keepdim=True)
        return self.vectors(tokens).sum(dim=1) / known


def make_cnn(dropout=0.0):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
    )


OF_EXTRACTORS = {*FeatureExtractor(nn.Identity).get_params()} - {"module"}
OF_TRAINING = {*TrainingOptions().get_params()}


def images_regressor(extractor=make_cnn, **kwargs):
    settings = {"max_iter": 8, "random_state": 0}
    options = {name: kwargs.pop(name) for name in OF_EXTRACTORS & kwargs.keys()}
    extractor = FeatureExtractor(extractor, **{"learning_rate": 0.01, **options})
    options = {name: kwargs.pop(name) for name in OF_TRAINING & kwargs.keys()}
    training = TrainingOptions(**{"batch_size": 16, **options})
    return NONARegressor(extractor, training=training, **{**settings, **kwargs})


def texts_regressor(**kwargs):
    return images_regressor(WordBag, collate_fn=tokenize, **kwargs)


@pytest.mark.slow
def test_learns_from_images():
    X, y = make_images(160)
    reg = images_regressor(max_iter=20).fit(X[:120], y[:120])
    assert reg.score(X[120:], y[120:]) > 0.9
    assert reg.score(None, y[:120]) > 0.9
    ids = reg.heaviest_neighbors(X[120:], 3)[1]
    assert np.abs(y[ids[:, 0]] - y[120:]).mean() < 0.5
    sums = reg.explain(X[120:]).groupby("query")["contribution"].sum()
    np.testing.assert_allclose(sums, reg.predict(X[120:]))
    assert not hasattr(reg, "n_features_in_")
    plain = images_regressor(max_iter=20, adjust=False).fit(X[:120], y[:120])
    assert plain.score(X[120:], y[120:]) > 0.9
    np.testing.assert_allclose(plain.neighbor_weights(X[120:]) @ y[:120], plain.predict(X[120:]))


@pytest.mark.slow
def test_learns_from_texts():
    texts, y = make_texts(200)
    reg = texts_regressor(max_iter=30).fit(texts[:150], y[:150])
    assert reg.score(texts[150:], y[150:]) > 0.7
    mean, std = reg.predict(["very good film", "bad"], return_std=True)
    assert mean[0] > mean[1]
    assert (std > 0).all()
    low, high = reg.predict_quantiles(texts[150:], [0.1, 0.9]).T
    assert (low < high).all()


def test_new_texts_are_embedded_alone():
    """The bank is embedded at fit; a prediction embeds the queries only."""
    texts, y = make_texts()
    reg = texts_regressor(max_iter=1).fit(texts, y)
    extractor = reg.network_.embedding.extractor
    extractor.n_rows = 0
    reg.predict(["good", "bad book", "fine"])
    assert extractor.n_rows == 3
    reg.predict(None)
    assert extractor.n_rows == 3
    ids = reg.add_neighbors(["good film"], [1.0])
    assert extractor.n_rows == 4
    assert ids.tolist() == [90]
    assert len(reg.remove_neighbors(ids=ids).bank_) == 90
    with pytest.raises(ValueError, match="inconsistent numbers of samples: X has 2, y has 1"):
        reg.add_neighbors(["good", "bad"], [1.0])


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_queries_may_be_embedded_once():
    texts, y = make_texts()
    reg = texts_regressor(max_iter=1).fit(texts, y)
    new = ["good", "bad book", "fine"]
    expected = reg.predict(new, return_std=True)
    extractor = reg.network_.embedding.extractor
    extractor.n_rows = 0
    embedded = reg.embed(new)
    assert len(embedded) == 3
    np.testing.assert_array_equal(reg.predict(embedded, return_std=True), expected)
    assert reg.heaviest_neighbors(embedded, 2)[1].shape == (3, 2)
    assert reg.predict_quantiles(embedded).shape == (3, 3)
    assert reg.sample_y(embedded, 4).shape == (3, 4)
    assert reg.influence(embedded, y[:3]).error.shape == (90,)
    assert len(reg.explain(embedded, 4)) == 3 * 5
    assert reg.transform(embedded).shape == (3, 32)
    assert reg.add_neighbors(embedded, y[:3]).tolist() == [90, 91, 92]
    assert extractor.n_rows == 3
    reg.predict(new, return_std=True)
    assert extractor.n_rows == 6
    reg.fit(texts, y)
    with pytest.raises(ValueError, match="embedded by this estimator as it is fitted now"):
        reg.predict(embedded)


def test_features_are_found_and_embedded():
    X, y = make_images(30)
    network = images_regressor(adjust=True, max_iter=1, embedding_dim=5).fit(X, y).network_
    assert isinstance(network.embedding, ExtractorEmbedding)
    assert network.embed(Rows(X)).shape == (30, 6)  # 5 compared, and g of the target
    assert network.embedding.extractor[0].weight.dtype == torch.float32  # it may be too large
    layers = network.embedding.embedding.layers
    assert layers[0].in_features == 4 * 3 * 3
    assert layers[0].weight.dtype == torch.float64


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_targets_are_adjusted_only_if_adjust_is_true():
    X, y = make_images(30)
    for adjust in ("auto", False, True):
        reg = images_regressor(adjust=adjust, max_iter=1).fit(X, y)
        as_they_are = np.array_equal(reg.explain(X[:2]).target, reg.explain(X[:2]).adjusted_target)
        assert as_they_are == (adjust is not True)


@pytest.mark.slow
def test_a_module_is_copied_and_a_factory_is_called():
    X, y = make_images(40)
    module = make_cnn()
    before = copy.deepcopy(module.state_dict())
    by_module = images_regressor(module, max_iter=2).fit(X, y)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    again = clone(by_module).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), by_module.predict(X))
    first, second = (images_regressor(make_cnn, max_iter=2).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


def test_random_state_is_local_and_rules_dropout():
    X, y = make_images(40)
    before = torch.get_rng_state()
    first = images_regressor(lambda: make_cnn(0.5), max_iter=3).fit(X, y)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    second = images_regressor(lambda: make_cnn(0.5), max_iter=3).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    other = images_regressor(lambda: make_cnn(0.5), max_iter=3, random_state=1).fit(X, y)
    assert not np.array_equal(first.predict(X), other.predict(X))


def test_dropout_trains_and_is_off_in_the_bank():
    modes = []

    class Spy(nn.Flatten):
        def forward(self, X):
            modes.append((self.training, torch.is_grad_enabled(), len(X)))
            return super().forward(X)

    X, y = make_images(40)
    reg = images_regressor(nn.Sequential(Spy()), max_iter=2, batch_size=16).fit(X, y)
    assert {(training, gradient) for training, gradient, _ in modes} == {
        (True, True),
        (False, False),
    }
    n_train = round(40 * 0.85)
    assert sum(n for training, _, n in modes if training) == 2 * n_train
    assert not reg.network_.training


@pytest.mark.parametrize(
    ("params", "pool", "n_networks"),
    [
        ({}, "batch", 1),
        ({"micro_batch_size": 4}, "memory", 1),
        ({"micro_batch_size": 4, "training__neighbor_pool": "batch"}, "batch", 1),
        ({"feature_extractor": None}, "dataset", 2),
        ({"feature_extractor": None, "trend": None}, "dataset", 5),
    ],
)
def test_defaults_with_an_extractor(params, pool, n_networks, monkeypatch):
    seen = []

    def spy(network, train, valid, config, **kwargs):
        seen.append(config.neighbor_pool)
        return network, []

    monkeypatch.setattr(loop, "train_network", spy)
    X, y = make_images(60)
    size = params.pop("micro_batch_size", None)
    reg = images_regressor(micro_batch_size=size).set_params(**params)
    reg.fit(X.reshape(60, -1) if reg.feature_extractor is None else X, y)
    assert seen == [pool] * n_networks


def test_no_part_of_a_batch_is_alone():
    """With neighbor_pool='batch' a row alone would have no neighbour, and predict nothing."""
    X, y = make_images(40)
    sizes = []

    class Spy(nn.Flatten):
        def forward(self, X):
            sizes.append(len(X))
            return super().forward(X)

    reg = images_regressor(
        Spy, neighbor_pool="batch", batch_size=17, micro_batch_size=8, max_iter=2
    ).fit(X, y)
    assert set(sizes[1:]) & set(range(9)) == {5, 6}
    assert reg.n_iter_ == 2
    with pytest.raises(ValueError, match="micro_batch_size=1 leaves no neighbours"):
        reg.set_params(feature_extractor__micro_batch_size=1).fit(X, y)


def test_several_networks_each_have_an_extractor():
    X, y = make_images(60)
    reg = images_regressor(max_iter=2, n_estimators=2, embedding_dim=3).fit(X, y)
    assert reg.transform(X).shape == (60, 6)
    first, second = (
        embedding.extractor[0].weight for embedding in reg.network_.embedding.embeddings
    )
    assert first.dtype == torch.float32
    assert not torch.equal(first, second)


@pytest.mark.slow
def test_inputs_of_any_kind_agree():
    X, y = make_images(40)

    class Images(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, i):
            return torch.from_numpy(X[i]), y[i]

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.cnn = make_cnn()

        def forward(self, pixels):
            return self.cnn(pixels)

    expected = images_regressor(max_iter=2).fit(X, y).predict(X)
    for data in (torch.from_numpy(X), list(X), Rows(X), Images()):
        reg = images_regressor(max_iter=2).fit(data, y)
        np.testing.assert_allclose(reg.predict(data), expected, rtol=1e-5)
    reg = images_regressor(max_iter=2).fit(Images(), None)  # it holds the targets
    np.testing.assert_allclose(reg.predict(Images()), expected, rtol=1e-5)
    reg = images_regressor(Named, max_iter=2).fit({"pixels": X}, y)
    np.testing.assert_allclose(reg.predict({"pixels": X}), expected, rtol=1e-5)


@pytest.mark.slow
def test_cross_validation_and_grid_search():
    texts, y = make_texts(60)
    scores = cross_val_score(texts_regressor(max_iter=2), texts, y, cv=3)
    assert np.isfinite(scores).all()
    rows = Rows(texts, tokenize)
    np.testing.assert_array_equal(
        cross_val_score(texts_regressor(max_iter=2), rows, y, cv=3), scores
    )
    grid = {"embedding_dim": [2, 4], "feature_extractor__module": [WordBag, WordBag(3)]}
    search = GridSearchCV(texts_regressor(max_iter=1), grid, cv=2).fit(texts, y)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.predict(["good film"])).all()


def test_pickles():
    X, y = make_images(30)
    reg = images_regressor(max_iter=1).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(reg)).predict(X), reg.predict(X))


def test_warm_start_goes_on_from_the_extractor():
    X, y = make_images(60)
    reg = images_regressor(max_iter=5, warm_start=True, validation_fraction=None).fit(X, y)
    first = reg.history_[0]["train_loss"]
    assert reg.fit(X, y).history_[0]["train_loss"] < 0.7 * first


class Recorder(Callback):
    """What happens to the first weight of the extractor, and the learning rates."""

    def __init__(self, log):
        self.log = log

    def on_epoch_end(self, net, **kwargs):
        weight = net.module_.embedding.extractor[0].weight
        rates = [group["lr"] for group in net.optimizer_.param_groups]
        self.log.append((weight.detach().clone(), rates))

    def __deepcopy__(self, memo):
        return self  # the test looks into the log


def test_the_extractor_has_its_own_learning_rate():
    X, y = make_images(30)
    log = []
    images_regressor(
        max_iter=1,
        learning_rate=1e-5,
        learning_rate_init=0.02,
        callbacks=[Recorder(log)],
    ).fit(X, y)
    ((_, rates),) = log
    assert sorted(set(rates)) == [1e-5, 0.02]


def test_freeze_and_unfreeze():
    X, y = make_images(40)
    log = []
    callbacks = [
        Freezer("embedding.extractor.*"),
        Unfreezer("embedding.extractor.*", at=3),
        Recorder(log),
    ]
    reg = images_regressor(max_iter=4, callbacks=callbacks).fit(X, y)
    weights = [weight for weight, _ in log]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert not any(p.requires_grad for p in reg.network_.parameters())


def test_schedules_and_scores_by_callbacks():
    X, y = make_images(40)
    log = []
    warm_up = LRScheduler(torch.optim.lr_scheduler.LinearLR, start_factor=0.1, total_iters=3)
    callbacks = [warm_up, EpochScoring("r2", lower_is_better=False, name="r2"), Recorder(log)]
    reg = images_regressor(max_iter=4, callbacks=callbacks, learning_rate_init=0.02).fit(X, y)
    assert [max(rates) for _, rates in log] == pytest.approx([0.008, 0.014, 0.02, 0.02])
    assert np.isfinite([epoch["r2"] for epoch in reg.history_]).all()
    assert not hasattr(warm_up, "policy_")  # the fit used a copy


def test_micro_batches_add_up_to_the_batch():
    """Without batch norm, and where each part has the same neighbours."""
    X, y = make_images(40)
    whole, parts = (
        images_regressor(
            nn.Flatten, neighbor_pool="dataset", batch_size=64, max_iter=2, micro_batch_size=size
        ).fit(X, y)
        for size in (None, 5)
    )
    for one, other in zip(whole.history_, parts.history_, strict=True):
        np.testing.assert_allclose(one["train_loss"], other["train_loss"], rtol=1e-4)
    np.testing.assert_allclose(whole.predict(X), parts.predict(X), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["precision", "accelerator"])
def test_bfloat16_is_for_the_extractor(by):
    seen = set()

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 8)

        def forward(self, X):
            features = self.linear(X.flatten(1))
            seen.add(features.dtype)
            return features

    X, y = make_images(60)
    mixed = {"precision": "bfloat16"}
    if by == "accelerator":
        accelerate = pytest.importorskip("accelerate")
        accelerate.state.AcceleratorState._reset_state()  # one precision a process
        mixed = {"accelerator": lambda: accelerate.Accelerator(cpu=True, mixed_precision="bf16")}
    reg = images_regressor(Spy, max_iter=15, **mixed).fit(X, y)
    if by == "accelerator":
        accelerate.state.AcceleratorState._reset_state()
    assert torch.bfloat16 in seen
    assert reg.bank_.embeddings.dtype == torch.float32
    assert reg.score(None, y) > 0.7


def test_no_row_is_predicted_from_its_own_target_in_micro_batches():
    X, y = make_images(12)
    y = torch.tensor(y, dtype=torch.float32, requires_grad=True)
    pool = NEIGHBOR_POOLS["memory"](Rows(X), y, 12, torch.Generator().manual_seed(0))
    embedding = ExtractorEmbedding(nn.Flatten(), MLPEmbedding(64, 3))
    network = NeighborNetwork(embedding, NONAHead("dot"))
    rows = torch.tensor([7, 0, 3])
    for prediction, row in zip(network(rows, pool), rows, strict=True):
        (influence,) = torch.autograd.grad(prediction, y, retain_graph=True)
        assert influence[row] == 0
        assert influence.abs().sum() > 0.5


class Returns(nn.Module):
    """An extractor that returns what a function makes of the batch."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, X):
        return self.function(X)


def crash(X):
    raise RuntimeError("expected 3 channels")


@pytest.mark.parametrize(
    ("extractor", "message"),
    [
        (Returns(lambda X: X), r"shape \(2, n_features\), got shape \(2, 1, 8, 8\)"),
        (Returns(lambda X: X.flatten(1)[:1]), r"\(2, n_features\), got shape \(1, 64\)"),
        (Returns(lambda X: X.flatten()), r"\(2, n_features\), got shape \(128,\)"),
        (Returns(lambda X: X.flatten(1) * torch.nan), "with finite numbers, got tensor"),
        (Returns(lambda X: X.flatten(1) > 0), "with finite numbers, got tensor"),
        (Returns(lambda X: X.flatten(1).to("meta")), "on cpu, got one on meta"),
        (Returns(lambda X: (X, X)), "got tuple: wrap it in a module that returns one"),
        (Returns(crash), r"batch of 2 rows of X, \(2, 1, 8, 8\) of float32: expected 3"),
        (nn.Linear(64, 4, device="meta"), "feature_extractor cannot be moved to cpu"),
        (lambda: "a network", "must be a torch.nn.Module or make one, it made 'a network'"),
        (nn.Linear, "feature_extractor, called without arguments, failed: .*missing"),
        ("resnet", "The 'module' parameter of .* Got 'resnet' instead"),
    ],
)
def test_bad_extractors(extractor, message, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)  # no training may start
    X, y = make_images(20)
    reg = images_regressor(extractor)
    with pytest.raises(ValueError, match=message):
        reg.fit(X, y)
    with pytest.raises(NotFittedError):
        reg.predict(X)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (["good"] * 3, [1.0, 2.0], "inconsistent numbers of samples: X has 3, y has 2"),
        (["good"] * 2, [1.0, 2.0, 3.0], "inconsistent numbers of samples: X has 2, y has 3"),
        (["good"], [1.0], "X must have at least 2 rows to fit, got 1"),
        (["good", ""], [1.0, 2.0], r"texts that are not empty, got X\[1\]=''"),
        ([], [], "X must hold rows, got none"),
        (["good", "bad"], None, "requires y to be passed, but the target y is None"),
        (["good", "bad"], [1.0, np.nan], "Input y contains NaN"),
    ],
)
def test_bad_texts(X, y, message, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)
    with pytest.raises(ValueError, match=message):
        texts_regressor().fit(X, y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("collate_fn", "pad"),
        ("learning_rate", 0),
        ("micro_batch_size", 0),
        ("precision", "float16"),
        ("callbacks", "ProgressBar"),
        ("accelerator", "gpu"),
    ],
)
def test_bad_parameters(name, value, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)
    X, y = make_images(20)
    with pytest.raises(ValueError, match=f"The '{name}' parameter of .*Got {value!r} instead"):
        images_regressor(**{name: value}).fit(X, y)


@pytest.mark.parametrize("make", [object, lambda: 3])
def test_an_accelerator_is_made_before_training(make, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)
    X, y = make_images(20)
    with pytest.raises(ValueError, match=r"accelerator must make an accelerate\.Accelerator, got"):
        images_regressor(accelerator=make).fit(X, y)


def vectors_regressor(extractor, **kwargs):
    return NONARegressor(extractor, n_estimators=1, max_iter=1, random_state=0, **kwargs)


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 4)).astype(np.float32), rng.normal(size=30)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (lambda X: X[:, :3], r"failed on a batch of \d+ rows of X, \(\d+, 3\) of float32: mat1"),
        (lambda X: X[0], r"shape \(4, 2\), got shape \(2,\) for 4 rows of X, \(4,\) of float32"),
        (lambda X: X[:, None], r"\(30, 2\), got shape \(30, 1, 2\) for 30 rows of X"),
    ],
)
@pytest.mark.parametrize("method", ["predict", "add_neighbors", "embed"])
def test_queries_of_another_shape_than_the_rows_of_fit(vectors, queries, message, method):
    X, y = vectors
    reg = vectors_regressor(nn.Linear(4, 2)).fit(X, y)
    query = queries(X)
    arguments = [query, y[: len(query)]] if method == "add_neighbors" else [query]
    with pytest.raises(ValueError, match=message):
        getattr(reg, method)(*arguments)
    assert len(reg.bank_) == 30


@pytest.mark.parametrize("hidden_layer_sizes", [(), None])
def test_queries_whose_features_are_fewer_than_in_fit(vectors, hidden_layer_sizes):
    X, y = vectors
    reg = vectors_regressor(nn.Identity(), hidden_layer_sizes=hidden_layer_sizes).fit(X, y)
    with pytest.raises(ValueError, match=r"of shape \(30, 4\), got shape \(30, 3\)"):
        reg.predict(X[:, :3])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError(),
        KeyboardInterrupt(),
        RuntimeError("can't allocate memory"),
    ],
)
def test_want_of_memory_is_no_fault_of_the_queries(vectors, error):
    X, y = vectors
    reg = vectors_regressor(Fails(nn.Linear(4, 2))).fit(X, y)
    reg.network_.embedding.extractor.error = error
    with pytest.raises(type(error)):
        reg.predict(X)


class Fails(nn.Module):
    """A module that fails once it has an error."""

    error = None

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, X):
        if self.error is not None:
            raise self.error
        return self.module(X)


def test_the_form_of_input_is_that_of_the_fit(vectors):
    X, y = vectors
    table = vectors_regressor(None).fit(X, y)
    expected = table.predict(X)
    table.set_params(feature_extractor=nn.Linear(4, 2))
    assert np.array_equal(table.predict(X), expected)
    rows = vectors_regressor(nn.Linear(4, 2)).fit(X, y)
    rows.set_params(feature_extractor=None)
    with pytest.raises(ValueError, match="feature_extractor must not be None for queries"):
        rows.predict(X)


def test_a_failed_refit_leaves_the_earlier_model():
    texts, y = make_texts(30)
    reg = texts_regressor(max_iter=1).fit(texts, y)
    before = reg.predict(texts)
    with pytest.raises(ValueError, match="not empty"):
        reg.fit([*texts[:5], ""], y[:6])
    np.testing.assert_array_equal(reg.predict(texts), before)


@pytest.mark.slow
def test_from_a_table_to_texts_and_back():
    """Nothing is left of the table's columns while the rows are of another kind."""
    pd = pytest.importorskip("pandas")
    X, y = make_images(30)
    table = pd.DataFrame(X.reshape(30, -1)).add_prefix("pixel ")
    reg = NONARegressor(n_estimators=1, max_iter=1, random_state=0).fit(table, y)
    of_tables = ("n_features_in_", "feature_names_in_", "features_")
    assert reg.n_features_in_ == 64
    assert all(hasattr(reg, name) for name in of_tables)
    predictions = reg.predict(table)
    reg.set_params(feature_extractor=make_cnn).fit(X, y)
    assert not any(hasattr(reg, name) for name in of_tables)
    assert reg.predict(X).shape == (30,)
    reg.set_params(feature_extractor=None).fit(table, y)
    assert all(hasattr(reg, name) for name in of_tables)
    np.testing.assert_array_equal(reg.predict(table), predictions)


def test_accelerate_changes_nothing_on_one_cpu(capsys):
    accelerate = pytest.importorskip("accelerate")
    X, y = make_images(40)
    plain = images_regressor(max_iter=3).fit(X, y)
    reg = images_regressor(max_iter=3, accelerator=lambda: accelerate.Accelerator(cpu=True))
    reg.fit(X, y)
    np.testing.assert_allclose(reg.predict(X), plain.predict(X), rtol=1e-5)
    assert capsys.readouterr().out == ""  # silent unless verbose


# The memory gives each process the neighbours that one alone has.
IN_PROCESSES = {
    "extractor": nn.Flatten,
    "neighbor_pool": "memory",
    "validation_fraction": None,
    "n_neighbors": None,
    "max_iter": 3,
}


def train_in_two_processes(folder):
    """What each process runs: fits, whose predictions it saves."""
    from accelerate import Accelerator

    torch.set_num_threads(1)
    X, y = make_images(41)
    for adjust in (True, False):
        reg = images_regressor(
            **IN_PROCESSES, adjust=adjust, accelerator=lambda: Accelerator(cpu=True), verbose=1
        ).fit(X, y)
        losses = [epoch["train_loss"] for epoch in reg.history_]
        np.save(f"{folder}/{os.environ['RANK']}.{adjust}.npy", np.r_[reg.predict(X), losses])
    short = reg.set_params(training__max_time=1e-9 if os.environ["RANK"] == "1" else 1e9).fit(X, y)
    assert [epoch.get("stopped") for epoch in short.history_] == ["max_time"]


@pytest.mark.first
@pytest.mark.slow
def test_two_processes_train_one_network(tmp_path):
    """Each takes half of every batch, and both have the same network in the end.

    They stop together when one of them has no time left; the first alone prints the progress.
    """
    pytest.importorskip("accelerate")
    script = tmp_path / "script.py"
    here = Path(__file__).parent
    script.write_text(
        f"import sys; sys.path[:0] = {[str(here), str(here.parent)]!r}\n"
        f"import test_extractor; test_extractor.train_in_two_processes({str(tmp_path)!r})\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = os.environ | {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("0 of 1 networks trained") == 3  # fits
    X, y = make_images(41)
    for adjust in (True, False):
        first, second = (np.load(tmp_path / f"{rank}.{adjust}.npy") for rank in range(2))
        np.testing.assert_allclose(first, second, rtol=1e-5)
        assert np.corrcoef(first[:41], y)[0, 1] > 0.9
        alone = images_regressor(**IN_PROCESSES, adjust=adjust).fit(X, y)
        losses = [epoch["train_loss"] for epoch in alone.history_]
        if adjust:  # the first steps overshoot, farther than other batches may be compared
            assert first[-1] < 0.2
            assert losses[-1] < 0.2
        else:
            np.testing.assert_allclose(first[41:], losses, rtol=0.3)  # smaller batches


def test_gaps_are_allowed_only_without_an_extractor():
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20.0)
    X[3, 0] = np.nan
    reg = NONARegressor(n_estimators=1, max_iter=1)
    assert get_tags(reg).input_tags.allow_nan
    reg.fit(X, y)
    reg.set_params(feature_extractor=nn.Identity())
    assert not get_tags(reg).input_tags.allow_nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        reg.fit(X, y)
