"""Heads, banks and estimators with each weighting."""

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from inner.inference import Evaluation, LabelExclusion, Neighbors
from inner.training import loop
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from nona_sklearn import (
    ClassHead,
    NONAClassifier,
    NONAHead,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)
from nona_sklearn.attention import AverageHead
from nona_sklearn.weighting import (
    WEIGHTINGS,
    Entmax,
    Preconditioned,
    Sigmoid,
    SparseSoftmax,
    Weighting,
)
from nona_sklearn.weighting.base import softmax

EACH = pytest.mark.parametrize("name", WEIGHTINGS)


def log_student(s):
    return -s.square().log1p()


class Sharpened(Weighting):
    """Row by row: the square of softmax, normalised."""

    def weigh(self, s, log_measure=None, between=None):
        weights = softmax(s if log_measure is None else s + log_measure / 2).square()
        total = weights.sum(dim=1, keepdim=True)
        return weights / torch.where(total > 0, total, 1.0)


# -- tiles and their definition ----------------------------------------------------------------


@pytest.fixture(params=[*WEIGHTINGS, "one's own", "one's own of rows"])
def weighting(request):
    own = {"one's own": Weighting(log_student), "one's own of rows": Sharpened()}
    return own.get(request.param, request.param)


def make_question(
    weighting, step=None, prior=False, exclusion=False, average=False, classes=False
):
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(40, 4, generator=generator)
    query = embeddings[:11] if exclusion else torch.randn(11, 4, generator=generator)
    if weighting == "uniform" and step is None:
        step = "s2"
    values = torch.randn(40, 1 + classes, generator=generator).double()
    if classes:
        values = torch.eye(2).double()[values.argmax(dim=1)]

    def make_head(temperature):
        n_adjusted = values.shape[1]
        arguments = "l2", step and SoftStep(step), weighting, True, None, n_adjusted
        head = (
            ClassHead(*arguments, prior=torch.tensor([0.4, 0.6]))
            if classes
            else NONAHead(*arguments)
        )
        if hasattr(head, "log_temperature"):
            head.log_temperature.data.fill_(temperature)
        head.trust_radius.fill_(1.5)  # so that some fade
        return head.eval()

    head = make_head(-0.5)
    if average:
        head = AverageHead([head, make_head(0.5)]).eval()
        embeddings, query = embeddings.repeat(1, 2), query.repeat(1, 2)
    log_prior = torch.randn(40, generator=generator) if prior else None
    excluded = LabelExclusion(torch.arange(11) // 2, torch.arange(40) // 2) if exclusion else None
    return Evaluation(head, Neighbors(embeddings, values, log_prior), query, excluded)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"prior": True, "exclusion": True},
        {"step": "s1", "exclusion": True},
        {"step": "s2", "prior": True},
        {"average": True, "exclusion": True},
        {"classes": True, "step": "s1", "average": True},
        {"classes": True},
    ],
    ids=str,
)
def test_predictions_tile_by_tile_are_the_definition(weighting, kwargs, monkeypatch):
    monkeypatch.setattr("inner.inference.evaluation.BLOCK_PAIRS", 8 * 15)
    evaluation = make_question(weighting, **kwargs)
    neighbors = evaluation.neighbors
    excluded = None
    if (pairs := evaluation.exclusion) is not None:
        excluded = pairs.queries[:, None] == pairs.neighbors
    with torch.no_grad():
        weights = evaluation.head.neighbor_weights(
            evaluation.query, neighbors.embeddings, excluded, neighbors.log_prior
        ).double()
        mean = evaluation.attend().double()
    close = {"rtol": 0, "atol": 2e-5}  # float32's digits, of values of about 1
    torch.testing.assert_close(evaluation.mean(), mean, **close)
    torch.testing.assert_close(evaluation.plain_mean(), weights @ neighbors.values, **close)
    ours = evaluation.sparse_weights().toarray()
    np.testing.assert_allclose(ours, weights, atol=1e-6)
    heaviest, positions, _ = evaluation.heaviest(3)
    torch.testing.assert_close(heaviest, weights.topk(3, dim=1).values, rtol=0, atol=1e-6)
    torch.testing.assert_close(weights.gather(1, positions), heaviest, rtol=0, atol=1e-6)
    sizes = 1 / weights.square().sum(dim=1)
    torch.testing.assert_close(evaluation.effective_sizes(), sizes, rtol=1e-4, atol=0)


@EACH
@pytest.mark.parametrize("shift", [90, 300])
def test_far_from_all_rows_predictions_are_the_definition(name, shift):
    """Where exponentials of similarities are nothing to float32, and where softplus is one."""
    evaluation = make_question(name)
    evaluation = replace(evaluation, query=evaluation.query + shift)
    with torch.no_grad():
        mean, plain = (
            evaluation.attend().double(),
            evaluation.head.neighbor_weights(evaluation.query, evaluation.neighbors.embeddings),
        )
    # A similarity of n digits before the point has so many fewer behind it, and a softmax's
    # weights differ by the differences of similarities.
    close = {"rtol": 0, "atol": 1e-6 * shift}
    np.testing.assert_allclose(evaluation.sparse_weights().toarray(), plain, **close)
    np.testing.assert_allclose(evaluation.mean(), mean, **close)


@EACH
def test_a_query_without_neighbours_is_predicted_as_0(name):
    evaluation = make_question(name)
    every_pair = LabelExclusion(torch.zeros(11).long(), torch.zeros(40).long())
    alone = replace(evaluation, exclusion=every_pair)
    assert (alone.attend() == 0).all()
    assert (alone.mean() == 0).all()


@pytest.mark.parametrize(
    "name", [name for name in WEIGHTINGS if name not in ("sparse_softmax", "triangular")]
)
@pytest.mark.parametrize("step", [None, "s1"])
def test_a_prior_of_2_is_the_row_twice(name, step):
    """Those of k rows count them, whatever they weigh."""
    weighting = Preconditioned(60) if name == "preconditioned" else name  # all
    evaluation = make_question(weighting, step)
    twice = torch.arange(40).repeat_interleave(torch.tensor([1, 2] * 20))
    log_prior = torch.tensor([1.0, 2.0] * 20).log()
    neighbors = evaluation.neighbors
    heavier = replace(evaluation, neighbors=replace(neighbors, log_prior=log_prior))
    repeated = replace(evaluation, neighbors=neighbors[twice])
    torch.testing.assert_close(heavier.mean(), repeated.mean(), rtol=0, atol=1e-4)


# -- estimators --------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1]
LABELS = np.where(y > 0.3, "high", np.where(y < -0.3, "low", "middle"))
X, X_test, y, LABELS = X[:70], X[70:], y[:70], LABELS[:70]


def nona(weighting, n_estimators=1, classes=False, **kwargs):
    kind = NONAClassifier if classes else NONARegressor
    step = "s1" if weighting == "uniform" else None
    return kind(
        weighting=weighting,
        **{"n_estimators": n_estimators, "max_iter": 2, "random_state": 0, "softstep": step}
        | {"similarity": "l2"}
        | kwargs,
    )


@cache
def fitted(name, n_estimators, classes=False, adjust=False):
    """For queries only, not to be edited."""
    reg = nona(name, n_estimators, classes, adjust=adjust)
    return reg.fit(X, LABELS if classes else y)


def again(model):
    """The same, to be edited."""
    return pickle.loads(pickle.dumps(model))


def defined(model, queries=None):
    """All weights by the definition, (q, n); of the bank's rows each without itself."""
    z, excluded = model.bank_.embeddings, torch.eye(len(model.bank_), dtype=torch.bool)
    if queries is not None:
        z, excluded = torch.as_tensor(model.transform(queries)), None
    bank = model.bank_.neighbors
    with torch.no_grad():
        weights = model.network_.head.neighbor_weights(
            z, bank.embeddings, excluded, bank.log_prior
        )
    return weights.numpy()


FITTED = pytest.mark.parametrize("n_estimators", [1, 2])


@EACH
@FITTED
def test_regressors_predict_weights_times_targets(name, n_estimators):
    reg = fitted(name, n_estimators)
    for queries in (X_test, None):
        weights = reg.neighbor_weights(queries)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        np.testing.assert_allclose(weights @ y, reg.predict(queries), atol=1e-5)
        np.testing.assert_allclose(weights.toarray(), defined(reg, queries), atol=1e-5)
    assert (reg.neighbor_weights().diagonal() == 0).all()


@pytest.mark.slow
@EACH
@FITTED
def test_classifiers_predict_weights_of_classes(name, n_estimators):
    clf = fitted(name, n_estimators, classes=True)
    one_hot = (clf.classes_[:, None] == LABELS).T.astype(float)
    for queries in (X_test, None):
        weights = clf.neighbor_weights(queries)
        np.testing.assert_allclose(weights.toarray(), defined(clf, queries), atol=1e-5)
        proba = clf.predict_proba(queries)
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        assert (clf.predict(queries) == clf.classes_[proba.argmax(axis=1)]).all()
    clf = again(clf).set_neighbor_targets(LABELS)  # neither adjusted nor smoothed
    np.testing.assert_allclose(
        clf.predict_proba(X_test), clf.neighbor_weights(X_test) @ one_hot, atol=1e-5
    )


@pytest.mark.slow
@EACH
@FITTED
def test_adjusted_rows_add_up(name, n_estimators):
    reg = fitted(name, n_estimators, adjust="auto")
    for k in (4, None):
        sums = reg.explain(X_test, k).groupby("query")["contribution"].sum()
        np.testing.assert_allclose(sums, reg.predict(X_test), atol=1e-5)


@EACH
@FITTED
def test_leave_one_out_is_a_bank_without_the_row(name, n_estimators):
    reg = fitted(name, n_estimators)
    ours = reg.predict(None)
    for row in (0, 13, 69):
        without = again(reg).remove_neighbors(ids=row)
        np.testing.assert_allclose(without.predict(X[[row]]), ours[row], atol=1e-5)


@EACH
@FITTED
def test_neighbours_and_sizes_are_those_of_the_weights(name, n_estimators):
    reg = fitted(name, n_estimators)
    for queries in (X_test, None):
        weights = reg.neighbor_weights(queries).toarray()
        found, ids = reg.heaviest_neighbors(queries, 3)
        np.testing.assert_allclose(found, -np.sort(-weights, axis=1)[:, :3], atol=1e-6)
        np.testing.assert_allclose(np.take_along_axis(weights, ids, 1), found, atol=1e-6)
        sizes = 1 / (weights**2).sum(axis=1)
        np.testing.assert_allclose(
            reg.neighborhood(queries)["effective_n_neighbors"], sizes, rtol=1e-4
        )


@pytest.mark.parametrize("queries", [X_test, None])
def test_neighbours_beyond_those_of_weight_are_the_next_nearest(queries):
    few = NONARegressor(n_estimators=1, n_neighbors=3, max_iter=2, random_state=0).fit(X, y)
    weights, ids = few.heaviest_neighbors(queries, 8)
    assert (weights[:, 3:] == 0).all()
    assert (weights[:, :3] > 0).all()
    rows = few.transform(X)
    query = rows if queries is None else few.transform(queries)
    distance = abs(rows[ids] - query[:, None]).sum(axis=2)
    rounding = 1e-5 * distance.max()  # of embeddings in float32
    assert (np.diff(distance, axis=1) >= -rounding).all()
    n_rows = len(X) - (queries is None)
    every = few.heaviest_neighbors(queries, n_rows)[1]
    np.testing.assert_array_equal(every[:, :8], ids)
    assert all(len({*row}) == n_rows for row in every.tolist())


@EACH
@FITTED
def test_distributions(name, n_estimators):
    reg = fitted(name, n_estimators)
    median = reg.predict_quantiles(X_test, 0.5)
    spread = np.ptp(y)  # adjusted targets may lie beyond all targets
    assert ((median >= y.min() - spread) & (median <= y.max() + spread)).all()
    quantiles = reg.predict_quantiles(X_test, np.linspace(0.05, 0.95, 7))
    assert (np.diff(quantiles, axis=1) >= -1e-9).all()
    cdf = reg.predict_cdf(X_test, np.linspace(y.min() - 5, y.max() + 5, 30))
    assert (np.diff(cdf, axis=1) >= -1e-9).all()
    np.testing.assert_allclose(cdf[:, [0, -1]], [[0, 1]] * len(X_test), atol=0.05)
    mean, std = reg.predict(X_test, return_std=True)
    assert (std > 0).all()
    np.testing.assert_allclose(mean, reg.predict(X_test))
    draws = reg.sample_y(X_test, 20)
    assert np.isfinite(draws).all()


@EACH
def test_calibration_covers_the_errors_of_predictions(name):
    reg = again(fitted(name, 1))
    reg.calibrate()
    low, high = reg.predict_quantiles(None, [0.05, 0.95]).T
    assert 0.75 <= ((low <= y) & (y <= high)).mean() <= 1
    before = reg.calibration_
    reg.calibrate(X, y + 100 * RNG.normal(size=70))
    narrow, wide = before, reg.calibration_
    assert max(wide.noise) > max(narrow.noise)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("classes", [False, True])
def test_sample_weights_count(name, classes):
    targets = LABELS if classes else y
    weights = np.where(np.arange(70) % 5 == 0, 0, np.where(np.arange(70) % 3 == 0, 4.0, 1.0))
    kept = weights > 0
    model = nona(name, 1, classes, adjust=False).fit(X, targets, sample_weight=weights)
    found = model.neighbor_weights(X_test).toarray()
    np.testing.assert_allclose(found, defined(model, X_test), atol=1e-5)
    assert found.shape[1] == kept.sum()
    model.set_neighbor_targets(targets[kept])
    if not classes:
        np.testing.assert_allclose(found @ y[kept], model.predict(X_test), atol=1e-5)
    with torch.no_grad():
        z, embeddings = torch.as_tensor(model.transform(X_test)), model.bank_.embeddings
        alike = model.network_.head.neighbor_weights(z, embeddings).numpy()
    heavy = weights[kept] == 4
    assert found[:, heavy].sum() > alike[:, heavy].sum()


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("classes", [False, True])
def test_edits_are_a_bank_built_so(name, classes):
    targets = LABELS if classes else y
    model = fitted(name, 2, classes)
    edited = again(model)
    edited.remove_neighbors(ids=[3, 5, 40])
    kept = np.setdiff1d(np.arange(70), [3, 5, 40])
    evaluate = "predict_proba" if classes else "predict"
    with torch.no_grad():
        z = torch.as_tensor(model.transform(X_test))
        embeddings = model.bank_.embeddings
        expected = model.network_.head.neighbor_weights(z, embeddings[kept]).numpy()
    np.testing.assert_allclose(edited.neighbor_weights(X_test).toarray(), expected, atol=1e-5)
    edited.add_neighbors(X[[3, 5, 40]], targets[[3, 5, 40]])
    for queries in (X_test, X[[3, 5]]):
        np.testing.assert_allclose(
            getattr(edited, evaluate)(queries), getattr(model, evaluate)(queries), atol=1e-5
        )


@EACH
def test_a_compressed_bank_keeps_what_counts(name):
    few = again(fitted(name, 1)).compress(20)
    assert len(few.bank_) == 20
    weights = few.neighbor_weights(X_test)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(weights @ y[few.bank_.ids], few.predict(X_test), atol=1e-5)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("classes", [False, True])
def test_pickles_clones_and_is_repeatable(name, classes):
    model = fitted(name, 2, classes)
    evaluate = "predict_proba" if classes else "predict"
    expected = getattr(model, evaluate)(X_test)
    np.testing.assert_array_equal(getattr(again(model), evaluate)(X_test), expected)
    new = clone(model)
    assert new.get_params()["weighting"] == name
    assert not hasattr(new, "bank_")
    new.fit(X, LABELS if classes else y)
    np.testing.assert_array_equal(getattr(new, evaluate)(X_test), expected)
    other = clone(model).set_params(weighting=SparseSoftmax(5), softstep=None)
    other.fit(X, LABELS if classes else y)
    assert (np.diff(other.neighbor_weights(X_test).indptr) <= 10).all()  # 5 of each network


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("on", ["rank", "similarity"])
@pytest.mark.parametrize("kind", [SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier])
def test_softstep_k_nn(name, on, kind):
    classes = kind is SoftStepKNeighborsClassifier
    knn = kind(
        weighting=name,
        similarity="l2",
        softstep=SoftStep("s1", on=on),
        max_iter=2,
        trend=None,
        random_state=0,
        **({"smoothing": False} if classes else {}),
    ).fit(X, LABELS if classes else y)
    for queries in (X_test, None):
        weights = knn.neighbor_weights(queries)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        if classes:
            one_hot = (knn.classes_[:, None] == LABELS).T
            np.testing.assert_allclose(weights @ one_hot, knn.predict_proba(queries), atol=1e-5)
        else:
            np.testing.assert_allclose(weights @ y, knn.predict(queries), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [False, True])
def test_a_search_over_weightings(classes):
    grid = {"weighting": ["softmax", SparseSoftmax(8), Entmax(1.5)]}
    search = GridSearchCV(nona("softmax", 1, classes), grid, cv=2).fit(X, LABELS if classes else y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    tried = [str(weighting) for weighting in search.cv_results_["param_weighting"]]
    assert tried == [
        "softmax",
        "SparseSoftmax(n_neighbors=8)",
        "Entmax(alpha=1.5, learn_alpha=False)",
    ]
    best = search.best_estimator_.network_.head.weighting
    assert type(best).__name__.lower() in str(search.best_params_["weighting"]).lower()


def test_what_is_given_stays_as_it_is():
    """Each network learns its own."""
    given = Sigmoid()
    reg = nona(given, 2, training=TrainingOptions(learning_rate_init=0.1)).fit(X, y)
    assert reg.weighting is given
    start = float(given.bias.detach())
    learned = [float(head.weighting.bias) for head in reg.network_.head.heads]
    assert len({start, *learned}) == 3
    assert start == float(Sigmoid().bias.detach())


def test_ones_own_in_estimators(monkeypatch):
    monkeypatch.setitem(WEIGHTINGS, "student", lambda: Weighting(log_student))
    named, given = (nona(w, adjust=False).fit(X, y) for w in ("student", Weighting(log_student)))
    np.testing.assert_array_equal(named.predict(X_test), given.predict(X_test))
    of_rows = nona(Sharpened(), adjust=False).fit(X, y)
    for reg in (given, of_rows):
        expected = reg.predict(X_test)
        np.testing.assert_allclose(reg.neighbor_weights(X_test) @ y, expected, atol=1e-5)
        np.testing.assert_array_equal(again(reg).predict(X_test), expected)


@pytest.mark.parametrize("name", ["sparsemax", "sparse_softmax"])
def test_few_neighbours_count(name):
    weights = fitted(name, 1).neighbor_weights(X_test)
    assert weights.nnz < 0.5 * weights.shape[0] * weights.shape[1]


# -- what cannot be ----------------------------------------------------------------------------


class Odd(Weighting):
    def weigh(self, s, log_measure=None, between=None):
        return s


KINDS = [NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier]


@cache
def plainly_fitted(kind):
    targets = LABELS if "Class" in kind.__name__ else y
    return kind(max_iter=1, random_state=0, similarity="l2").fit(X, targets)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"weighting": "distance"}, "The 'weighting' parameter of .* Got 'distance' instead"),
        ({"weighting": 3}, "The 'weighting' parameter of .* Got 3 instead"),
        ({"weighting": Entmax}, "The 'weighting' parameter of .* Got <class .*Entmax"),
        (
            {"weighting": SparseSoftmax(71)},
            r"weighting=SparseSoftmax\(n_neighbors=71\) needs as many training rows, got 70",
        ),
        ({"weighting": Preconditioned(1000)}, "needs as many training rows, got 70"),
        ({"weighting": Odd()}, r"weighting=Odd\(\) must give weights that are not negative"),
        (
            {"weighting": Weighting(torch.sqrt)},
            r"weighting=Weighting\(\) must give weights that are not negative and sum to 1",
        ),
        (
            {"weighting": "gaussian", "similarity": "cosine"},
            "weighting='gaussian' needs similarity 'l2' or 'l1', a distance, got 'cosine'",
        ),
    ],
    ids=str,
)
def test_bad_weightings_are_refused_before_training(kind, params, message, monkeypatch):
    targets = LABELS if "Class" in kind.__name__ else y
    model = again(plainly_fitted(kind))
    before, expected = dict(vars(model)), model.predict(X_test)
    monkeypatch.setattr(loop, "train_network", None)
    model.set_params(**params)
    with pytest.raises(ValueError, match=message):
        model.fit(X, targets)
    attributes = {k: v for k, v in vars(model).items() if k.endswith("_")}
    assert attributes == {k: v for k, v in before.items() if k.endswith("_")}
    np.testing.assert_array_equal(model.predict(X_test), expected)


@pytest.mark.parametrize("kind", [NONARegressor, NONAClassifier])
def test_uniform_needs_a_step(kind, monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)
    with pytest.raises(ValueError, match="weighting='uniform' needs a step or n_neighbors"):
        kind(weighting="uniform", n_neighbors=None).fit(X, y > 0)


def test_as_many_neighbours_as_rows_are_enough():
    reg = nona(SparseSoftmax(70), adjust=False).fit(X, y)
    assert (np.diff(reg.neighbor_weights(X_test).indptr) == 70).all()


@pytest.mark.parametrize("n_neighbors", [5, 32])
def test_a_doubled_bank_hardly_moves_preconditioned_weights(n_neighbors):
    """A twin shares its row's weight, and takes no other row's place."""
    generator = torch.Generator().manual_seed(0)
    z, query = torch.randn(50, 3, generator=generator), torch.randn(9, 3, generator=generator)
    head = NONAHead("l2", weighting=Preconditioned(n_neighbors)).eval()
    head.weighting.log_ridge.data.fill_(-5)
    once = head.neighbor_weights(query, z).detach()
    twice = head.neighbor_weights(query, torch.cat([z, z])).detach()
    np.testing.assert_allclose(twice[:, :50], twice[:, 50:], atol=1e-5)
    np.testing.assert_allclose(twice[:, :50] + twice[:, 50:], once, atol=0.02)
    assert ((twice > 0).sum(dim=1) <= 2 * n_neighbors).all()


@pytest.mark.parametrize("end", [4.0, 0.9])
def test_beyond_the_end_of_a_custom_kernel_the_nearest_has_all_weight(end):
    """Epanechnikov's kernel gives nothing to neighbours at `end` and beyond."""
    kernel = Weighting(lambda s: (1 - (s / end).square()).clamp_min(0).log())
    evaluation = make_question(kernel)
    far = replace(evaluation, query=torch.cat([evaluation.query, evaluation.query + 100]))
    with torch.no_grad():
        weights = far.head.neighbor_weights(far.query, far.neighbors.embeddings)
        mean = far.attend().double()
    both = (far.head.metric_part(each) for each in (far.query[11:], far.neighbors.embeddings))
    nearest = torch.cdist(*both).argmin(dim=1)
    torch.testing.assert_close(weights[11:], torch.eye(40)[nearest])
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(22))
    np.testing.assert_allclose(far.sparse_weights().toarray(), weights, atol=1e-6)
    torch.testing.assert_close(far.mean(), mean, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(far.heaviest(1)[1][11:, 0], nearest)
