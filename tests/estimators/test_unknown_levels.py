"""A level that fit did not see holds no information: a typical row, of which less is certain."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from inner.inference import UnknownLevels
from sklearn.base import clone

from nona_sklearn import (
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    ShardedNeighbors,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    counterfactuals,
    load,
    save,
    save_shards,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
LEVELS, N_EACH = 12, 12
QUICK = {"n_estimators": 2, "max_iter": 2, "random_state": 0}
SEEN = np.repeat(np.arange(LEVELS), N_EACH)
RNG = np.random.default_rng(0)
EFFECTS = RNG.normal(size=2 * LEVELS)  # of the second half, no row is in fit


def table(levels, values):
    return pd.DataFrame({"a": values, "level": [f"level {i}" for i in levels]})


TRAIN = table(SEEN, RNG.normal(size=len(SEEN)))
Y = TRAIN["a"].to_numpy() + EFFECTS[SEEN] + 0.1 * RNG.normal(size=len(SEEN))
NEW = np.repeat(np.arange(LEVELS, 2 * LEVELS), 4)
UNKNOWN = table(NEW, RNG.normal(size=len(NEW)))
QUANTILES = [0.05, 0.5, 0.95]


@pytest.fixture(scope="module")
def regressor():
    return NONARegressor(**QUICK).fit(TRAIN, Y)


@pytest.fixture(scope="module")
def soft():
    """Without training, in the given space."""
    return SoftStepKNeighborsRegressor(
        20, weighting="uniform", learn_feature_weights=False, trend=None
    ).fit(TRAIN, Y)


@pytest.fixture(scope="module")
def classifier():
    """The same for classes, of which the level tells much."""
    labels = np.where(Y > 0.5, "high", "low")
    knn = SoftStepKNeighborsClassifier(10, weighting="uniform", learn_feature_weights=False)
    return knn.set_params(smoothing=False, random_state=3).fit(TRAIN, labels)


def as_array(X):
    return np.column_stack([X["a"], X["level"].str[6:].astype(float)])


def variances(model):
    """What an unknown level of each category adds to the variance of each output."""
    learned = model.bank_.unknown_levels
    return np.array(learned.shares) * learned.amounts


def answers(model, X):
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)
    return np.column_stack([model.predict(X), model.predict_quantiles(X, QUANTILES)])


def test_it_is_encoded_as_the_mean_of_training_rows(regressor):
    encode = regressor.features_.transform
    expected = encode(TRAIN)[:, 1:].mean(axis=0)
    np.testing.assert_allclose(encode(UNKNOWN)[:, 1:], [expected] * len(UNKNOWN))


@pytest.mark.slow
def test_no_level_of_three_is_nearer_than_the_others():
    """As 0 in all columns, an unknown level was nearest to the most frequent one."""
    levels, means = np.repeat([0, 1, 2], [10, 10, 20]), np.array([3.1, 1.0, 1.2])
    X = pd.DataFrame({"level": np.array(["p", "q", "r"])[levels]})
    knn = SoftStepKNeighborsRegressor(40, similarity="l2", learn_feature_weights=False)
    model = knn.set_params(trend=None).fit(X, means[levels])
    (found,) = model.predict(pd.DataFrame({"level": ["s"]}))
    assert means[levels].std() / 2 > abs(found - means[levels].mean())


def through_file(model, X, folder):
    save(model, folder / "model.safetensors")
    return answers(load(folder / "model.safetensors"), X)


def through_shards(model, X, folder):
    save_shards(model, folder / "shards", 3)
    return answers(ShardedNeighbors(folder / "shards"), X)


PATHS = {
    "polars": lambda model, X, _: answers(model, pl.from_pandas(X)),
    "category": lambda model, X, _: answers(model, X.astype({"level": "category"})),
    "gap": lambda model, X, _: answers(model, X.assign(level=None)),
    "row by row": lambda model, X, _: np.vstack(
        [answers(model, X[i : i + 1]) for i in range(len(X))]
    ),
    "embedded": lambda model, X, _: answers(model, model.embed(X)),
    "file": through_file,
    "shards": through_shards,
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_all_paths_agree(path, name, tmp_path, request):
    model, X = request.getfixturevalue(name), UNKNOWN[:6]
    found = PATHS[path](model, X, tmp_path)
    np.testing.assert_allclose(found, answers(model, X), rtol=1e-4, atol=1e-4)


def test_arrays_agree():
    model = NONARegressor(table_encoder=TableEncoder(categorical_features=[1]), **QUICK).fit(
        as_array(TRAIN), Y
    )
    X = as_array(UNKNOWN[:6])
    expected = answers(model, X)
    gaps = np.column_stack([X[:, 0], np.full(len(X), np.nan)])
    np.testing.assert_array_equal(answers(model, gaps), expected)
    np.testing.assert_array_equal(answers(model, X + np.array([0, 100])), expected)


@pytest.mark.parametrize(
    "estimator", [NONARegressor(n_estimators=2), SoftStepKNeighborsRegressor()]
)
def test_quantiles_stay_on_the_scale_of_targets(estimator):
    """Where levels tell nearly all, an unknown one has errors a hundred times as large."""
    rng = np.random.default_rng(1)
    levels = rng.integers(5, size=300)
    X = table(levels, rng.normal(size=300))
    y = 3.0 * levels + X["a"].to_numpy() + 0.05 * rng.normal(size=300)
    model = clone(estimator).set_params(max_iter=30, random_state=0).fit(X, y)
    low, middle, high = model.predict_quantiles(X[:9].assign(level="new"), [0.1, 0.5, 0.9]).T
    assert y.std() / 2 < np.median(high - low) < 3 * np.ptp(y)
    assert np.abs(middle - y.mean()).max() < np.ptp(y)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["regressor", "soft"])
def test_distributions_are_as_much_wider(name, request):
    """Quantiles move by one number times log(p / (1 - p)); p is their probability."""
    model = request.getfixturevalue(name)
    X = UNKNOWN[:1]
    levels = np.array([0.1, 0.3, 0.7, 0.9])
    mean, std = model.predict(X, return_std=True)
    quantiles = model.predict_quantiles(X, levels)[0]
    np.testing.assert_allclose(model.predict_cdf(X, quantiles)[0], levels, atol=0.02)
    assert model.sample_y(X, 4000).std() == pytest.approx(std[0], rel=0.1)
    bank = model.bank_
    try:
        model.bank_ = replace(bank, unknown_levels=None)
        before, std_before = model.predict(X, return_std=True)
        quantiles_before = model.predict_quantiles(X, levels)[0]
    finally:
        model.bank_ = bank
    assert mean == before
    np.testing.assert_allclose(std**2, std_before**2 + variances(model)[0, 0])
    assert std > 1.2 * std_before
    moves = (quantiles - quantiles_before) / np.log(levels / (1 - levels))
    np.testing.assert_allclose(moves, moves[0])


def test_intervals_cover_new_levels(soft):
    y = UNKNOWN["a"] + EFFECTS[NEW]
    low, _, high = soft.predict_quantiles(UNKNOWN, QUANTILES).T
    assert np.mean((low <= y) & (y <= high)) > 0.75
    known_low, _, known_high = soft.predict_quantiles(TRAIN[::7], QUANTILES).T
    assert np.mean(high - low) > 1.2 * np.mean(known_high - known_low)


def test_a_level_that_tells_all_becomes_a_range():
    """Neighbours of an unknown level may have equal targets, whose variance is 0."""
    X = pd.DataFrame({"level": np.repeat([*"pqrs"], 40)})
    y = np.where(X["level"] == "s", 1000.0, 0.0)
    knn = SoftStepKNeighborsRegressor(
        3, weighting="uniform", learn_feature_weights=False, trend=None
    )
    model, new = knn.fit(X, y), pd.DataFrame({"level": ["new", "p"]})
    mean, std = model.predict(new, return_std=True)
    low, high = model.predict_quantiles(new, [0.1, 0.9]).T
    assert low[0] < mean[0] < high[0]
    assert 100 < std[0] < 2000
    assert (low[1], high[1], std[1]) == (mean[1], mean[1], 0.0)
    draws = model.sample_y(new, 2000)[0]
    assert draws.std() == pytest.approx(std[0], rel=0.1)
    reached = model.predict_cdf(new, [low[0], high[0]])[0]
    np.testing.assert_allclose(reached, [0.1, 0.9], atol=1e-6)


def test_each_level_counts_the_same():
    """Most rows have one level, whose targets are typical; most levels have others."""
    levels = np.concatenate([np.zeros(100), np.repeat(np.arange(1, 6), 4)]).astype(int)
    y = np.where(levels == 0, 0.0, 10.0 * (-1.0) ** levels)
    X = table(levels, np.zeros(120))
    knn = SoftStepKNeighborsRegressor(
        60, weighting="uniform", learn_feature_weights=False, trend=None
    )
    ((variance,),) = variances(knn.fit(X, y))
    assert variance > 40


TWO = pd.DataFrame(
    {
        "much": [f"m{i}" for i in np.arange(120) % 6],
        "little": [f"l{i}" for i in np.arange(120) // 20],
    }
)
OF_TWO = 3.0 * (np.arange(120) % 6) + 0.3 * (np.arange(120) // 20)


@pytest.fixture(scope="module")
def of_two_categories():
    knn = SoftStepKNeighborsRegressor(
        10, weighting="uniform", learn_feature_weights=False, trend=None
    )
    return knn.fit(TWO, OF_TWO)


def std_of_new(model, *columns):
    return model.predict(TWO[:1].assign(**dict.fromkeys(columns, "new")), return_std=True)[1][0]


def test_each_category_adds_its_own_variance(of_two_categories):
    model = of_two_categories
    assert std_of_new(model, "much") > 2 * std_of_new(model, "little")


def test_together_they_add_no_more_than_the_variance_of_targets(of_two_categories):
    """Copies of a category tell the same; a single one may add more."""
    copies = TWO[["much"]].assign(**{f"copy {i}": TWO["much"] for i in range(9)})
    model = clone(of_two_categories).fit(copies, OF_TWO)
    new = copies[:1].map(lambda _: "new")
    (added,) = model.embed(new).added.numpy()
    assert added == pytest.approx(max(variances(model).max(), OF_TWO.var()))
    assert added < variances(model).sum() / 2


def test_the_same_targets_have_the_same_intervals(of_two_categories):
    """Each output has a share of its own variance: a constant one has none."""
    both = np.stack([OF_TWO, np.full(120, 7.0)], axis=1)
    model = clone(of_two_categories).fit(TWO, both)
    before = variances(model)
    after = variances(model.set_neighbor_targets(both))
    np.testing.assert_allclose(after, before)
    new = TWO[:1].assign(much="new")
    np.testing.assert_array_equal(model.predict_quantiles(new, [0.1, 0.9])[0, :, 1], [7.0, 7.0])


def test_a_level_without_information_widens_nothing():
    random = np.random.default_rng(1)
    y = TRAIN["a"] + 0.5 * random.normal(size=len(TRAIN))
    params = {"weighting": "uniform", "learn_feature_weights": False, "trend": "additive"}
    model = SoftStepKNeighborsRegressor(20, **params).fit(TRAIN, y)
    ((variance,),) = variances(model)
    assert variance < 0.6 * 0.5**2


def test_rare_levels_are_as_unknown_ones():
    X = pd.concat([TRAIN, table([100], [0.0])], ignore_index=True)
    model = SoftStepKNeighborsRegressor(5, weighting="uniform", learn_feature_weights=False)
    model.fit(X, np.append(Y, 0.0))
    found = answers(model, table([100, 200], [0.0, 0.0]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    spread, known = np.ptp(found[0, 1:]), np.ptp(answers(model, TRAIN)[:, 1:], axis=1)
    assert spread > np.mean(known)


@pytest.mark.parametrize("name", ["soft", "classifier"])
def test_a_forgotten_level_is_unknown(name, request):
    fitted = request.getfixturevalue(name)
    model = deepcopy(fitted)
    model.remove_neighbors(ids=[*range(N_EACH)])
    forgotten, new = table([0], [0.5]), table([LEVELS], [0.5])
    np.testing.assert_array_equal(answers(model, forgotten), answers(model, new))
    assert (answers(fitted, forgotten) != answers(fitted, new)).all()


def test_displays_take_queries_of_unknown_levels(regressor):
    X = UNKNOWN[:1]
    threshold = float(regressor.predict(X)[0]) + 0.1
    found = counterfactuals(regressor, X, TRAIN, at_least=threshold)
    assert found["level"].iloc[0] == X["level"].iloc[0]
    assert found["prediction"].iloc[0] == pytest.approx(regressor.predict(X)[0])
    moves = regressor.attribute(X, TRAIN)
    sums = moves[["target", "a", "level", "interplay", "other"]].sum(axis=1)
    np.testing.assert_allclose(sums, moves["adjusted_target"], rtol=1e-5, atol=1e-5)
    assert X["level"].iloc[0] in NeighborsReport(regressor, X, TRAIN)._repr_html_()


def test_classes_of_an_unknown_level_are_those_of_a_typical_row():
    labels = np.where(EFFECTS[SEEN] > 0, "high", "low")
    clf = NONAClassifier(**QUICK).fit(TRAIN, labels)
    found = clf.predict_proba(UNKNOWN.assign(a=0.0))
    assert (found == found[0]).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)


def without_frequencies(model, X):
    """Probabilities as if no level were unknown."""
    return model.predict_proba(replace(model.embed(X), added=None))


@pytest.mark.parametrize(
    "estimator",
    [
        NONAClassifier(n_estimators=2),
        NONAClassifier(n_estimators=2, trend="kernel"),
        SoftStepKNeighborsClassifier(),
    ],
)
def test_a_new_level_has_the_frequencies_where_the_level_decides(estimator):
    """As a typical row, it was of the most frequent class with certainty."""
    levels = np.repeat(np.arange(12), 15)
    X = table(levels, np.random.default_rng(1).normal(size=180))
    y = np.where(levels % 3 == 0, "yes", "no")
    model = clone(estimator).set_params(max_iter=15, random_state=0).fit(X, y)
    new = X[::9].assign(level="new")
    np.testing.assert_allclose(model.predict_proba(new), [[2 / 3, 1 / 3]] * 20, atol=0.1)
    assert without_frequencies(model, new)[:, 0].mean() > 0.85
    assert model.score(X, y) == 1


def test_probabilities_are_mixed_with_frequencies(classifier):
    X = pd.concat([TRAIN[:5], UNKNOWN[:6]])
    found, alone = classifier.predict_proba(X), without_frequencies(classifier, X)
    share, _ = classifier.bank_.unknown_levels.shares[0]
    assert 0.1 < share < 0.9
    mixed = (1 - share) * alone[5:] + share * classifier.targets_.frequencies
    np.testing.assert_allclose(found[5:], mixed, rtol=1e-12)
    np.testing.assert_array_equal(found[:5], alone[:5])


def test_a_category_without_information_leaves_probabilities_alone():
    random = np.random.default_rng(1)
    X = table(np.arange(600) % 12, random.normal(size=600))
    y = np.c_[np.arange(600) % 2 == 0, X["a"] + random.normal(size=600) > 0].astype(int)
    knn = SoftStepKNeighborsClassifier(60, weighting="uniform", learn_feature_weights=False)
    shares = knn.set_params(max_iter=1, random_state=0).fit(X, y).bank_.unknown_levels.shares[0]
    assert shares[0] > 0.7
    assert shares[2] < 0.4


@pytest.fixture(scope="module")
def of_two_outputs():
    """The first output is of the level, the second is not."""
    random = np.random.default_rng(1)
    X = TWO.assign(a=random.normal(size=120))
    y = np.c_[np.arange(120) % 6 == 0, X["a"] + 0.5 * random.normal(size=120) > 0.5].astype(int)
    knn = SoftStepKNeighborsClassifier(10, weighting="uniform", learn_feature_weights=False)
    return knn.set_params(max_iter=1, random_state=0).fit(X, y), X, y


def test_each_output_has_its_own_share(of_two_outputs):
    model, X, y = of_two_outputs
    shares = np.array(model.bank_.unknown_levels.shares)
    np.testing.assert_array_equal(shares[:, ::2], shares[:, 1::2])
    assert shares[0, 0] > 0.3 + shares[0, 2]
    new = X[:8].assign(much="new")
    found, alone = model.predict_proba(new), without_frequencies(model, new)
    for j, (each, own) in enumerate(zip(found, alone, strict=True)):
        share, frequency = shares[0, 2 * j], y[:, j].mean()
        np.testing.assert_allclose(each.sum(axis=1), 1)
        np.testing.assert_allclose(each[:, 1], (1 - share) * own[:, 1] + share * frequency)


def test_of_several_unknown_levels_the_largest_share_counts():
    of_classes = UnknownLevels(((0.5, 0.5), (0.2, 0.2)), (0.25, 0.75), of_classes=True)
    unknown = torch.tensor([[True, False], [False, True], [True, True], [False, False]])
    expected = [[0.125, 0.375], [0.05, 0.15], [0.125, 0.375], [0.0, 0.0]]
    np.testing.assert_allclose(of_classes.added(unknown), expected)


def test_other_labels_have_their_own_frequencies(of_two_outputs):
    model, _, y = of_two_outputs
    before = model.bank_.unknown_levels
    after = deepcopy(model).set_neighbor_targets(1 - y).bank_.unknown_levels
    assert after.shares == before.shares
    expected = np.reshape(before.amounts, (2, 2))[:, ::-1].ravel()
    np.testing.assert_allclose(after.amounts, expected)


def test_frequencies_are_those_of_weighted_rows():
    labels, weight = np.where(SEEN % 3 == 0, "yes", "no"), np.linspace(1, 3, len(Y))
    knn = SoftStepKNeighborsClassifier(5, weighting="uniform", learn_feature_weights=False)
    knn.set_params(class_weight={"yes": 4}, max_iter=1, random_state=0).fit(
        TRAIN, labels, sample_weight=weight
    )
    amounts = knn.bank_.unknown_levels.amounts
    np.testing.assert_allclose(amounts, knn.targets_.frequencies, rtol=1e-6)


def test_contributions_sum_to_probabilities_of_unknown_levels(classifier):
    X = UNKNOWN[:3].reset_index(drop=True)
    for lines in (classifier.explain(X), classifier.explain(X, 2)):
        sums = lines.groupby("query")[["contribution_high", "contribution_low"]].sum()
        np.testing.assert_allclose(sums, classifier.predict_proba(X), atol=1e-6)
        assert (lines["neighbor"] == "network").sum() == 3


def test_rows_have_less_influence_on_unknown_levels(classifier):
    """A row changes a probability by as much less as the frequencies have of it."""
    X, truth = UNKNOWN[:1], ["high"]
    share, _ = classifier.bank_.unknown_levels.shares[0]
    alone = replace(classifier.embed(X), added=None)
    found, before = (classifier.influence(each, truth) for each in (X, alone))
    assert before["change"].max() > 0.01
    np.testing.assert_allclose(found["change"], (1 - share) * before["change"], atol=1e-12)


def test_scores_are_of_predictions_where_times_are_a_column():
    X, labels = TRAIN.assign(day=np.arange(144.0)), np.where(np.arange(144) < 134, "no", "yes")
    knn = SoftStepKNeighborsClassifier(3, weighting="uniform", learn_feature_weights=False)
    model = knn.set_params(max_iter=1, random_state=0).fit(X, labels, times="day")
    alone = UnknownLevels(((1.0, 1.0),), tuple(model.targets_.frequencies), of_classes=True)
    model.bank_ = replace(model.bank_, unknown_levels=alone)
    new = UNKNOWN.assign(day=200.0)
    assert model.score(new, ["no"] * len(new)) == 1
    assert (without_frequencies(model, new)[:, 0] < 0.5).any()


def test_a_bank_of_an_earlier_version_has_nothing_for_unknown_levels(classifier):
    state = classifier.bank_.__getstate__()
    del state["unknown_levels"]
    model = deepcopy(classifier)
    model.bank_.__setstate__(state)
    X = UNKNOWN[:3]
    np.testing.assert_array_equal(model.predict_proba(X), without_frequencies(classifier, X))


def test_displays_of_classes_take_queries_of_unknown_levels(classifier):
    X = UNKNOWN[:1]
    other = "low" if classifier.predict(X)[0] == "high" else "high"
    found = counterfactuals(classifier, X, TRAIN, y=other)
    assert found["prediction"].iloc[1] == other
    assert X["level"].iloc[0] in NeighborsReport(classifier, X, TRAIN)._repr_html_()


def test_an_encoder_without_shares_encodes_as_before(regressor):
    """Files of earlier versions lack them."""
    encoder = deepcopy(regressor.features_)
    vars(encoder.encoders_["categories"]).pop("shares_")
    assert (encoder.transform(UNKNOWN)[:, 1:] == 0).all()
    np.testing.assert_array_equal(encoder.transform(TRAIN), regressor.features_.transform(TRAIN))


def test_other_targets_have_intervals_in_their_unit(soft):
    """Other ones may have another unit, and another number of outputs."""
    X, copies = UNKNOWN[:3], [deepcopy(soft) for _ in range(3)]
    factors = [1.0, 1000.0, np.array([[1.0, 1000.0]])]
    for model, factor in zip(copies, factors, strict=True):
        model.set_neighbor_targets((Y[:, None] * factor).reshape(len(Y), -1).squeeze())
    one, thousands, both = (model.predict(X, return_std=True)[1] for model in copies)
    assert (one > soft.predict(TRAIN[:3], return_std=True)[1]).all()
    np.testing.assert_allclose(thousands, 1000 * one)
    np.testing.assert_allclose(both, np.stack([one, thousands], axis=1))
