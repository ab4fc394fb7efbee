"""Categories of many levels become the mean target of each."""

import numpy as np
import pandas as pd
import pytest
from inner.data import LevelEncoder, columns_of_targets
from sklearn.preprocessing import TargetEncoder

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    load,
    save,
)

RNG = np.random.default_rng(0)
N, N_LEVELS = 300, 80
LEVEL = RNG.integers(N_LEVELS, size=N)
EFFECT = RNG.normal(size=N_LEVELS)
NAMES = np.array([f"level {i}" for i in range(N_LEVELS)], dtype=object)
TABLE = pd.DataFrame(
    {"a": RNG.normal(size=N), "who": NAMES[LEVEL], "b": ["x", "y", "z"] * (N // 3)}
)
Y = 3 * EFFECT[LEVEL] + 0.1 * RNG.normal(size=N)
KINDS = [NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier]
QUICK = {"max_iter": 2, "n_estimators": 1, "random_state": 0}
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    # Which test_relations.py tests.
    "ignore:Rows with the same value in column 'who'",
)


def make(kind, **params):
    params = {"random_state": 0} | params
    has_networks = hasattr(kind(), "n_estimators")
    return kind(**params, n_estimators=1) if has_networks else kind(**params)


def targets(kind):
    return np.where(Y > 0, "high", "low") if "Classifier" in kind.__name__ else Y


def encoded(estimator, X=TABLE):
    return pd.DataFrame(
        estimator.features_.transform(X), columns=estimator.features_.get_feature_names_out()
    )


def test_other_rows_have_the_means_of_scikit_learn():
    reg = NONARegressor(**QUICK).fit(TABLE, Y)
    found = encoded(reg)
    assert list(found) == ["a", "b_x", "b_y", "b_z", "who_target"]
    expected = TargetEncoder().fit(TABLE[["who"]], Y).transform(TABLE[["who"]])[:, 0]
    # The estimator encodes standardised targets, in float32.
    np.testing.assert_allclose(
        found["who_target"], (expected - Y.mean()) / Y.std(), rtol=1e-5, atol=1e-6
    )


def test_a_new_level_has_the_mean_of_all():
    reg = NONARegressor(**QUICK).fit(TABLE, Y)
    found = encoded(reg, TABLE[:3].assign(who=["level 1", "new", None]))
    assert found["who_target"][1] == pytest.approx(0, abs=1e-6)
    assert found["who_target"][2] == found["who_target"][1]
    assert found["who_target"][0] != found["who_target"][1]


@pytest.mark.slow
def test_a_gap_is_a_level():
    table = TABLE.assign(who=TABLE["who"].where(LEVEL > 0, None))
    found = encoded(NONARegressor(**QUICK).fit(table, Y), table)
    of_gaps = found["who_target"][table["who"].isna()].unique()
    assert of_gaps == pytest.approx(
        [
            encoded(NONARegressor(**QUICK).fit(TABLE, Y))["who_target"][
                TABLE["who"] == "level 0"
            ].iloc[0]
        ]
    )


def test_a_training_row_has_the_mean_of_others():
    """Else its own target would be among its features: here, nothing else has information."""
    y = RNG.normal(size=N)
    level = np.arange(N) // 3  # three rows each
    columns = LevelEncoder().fit_transform(level[:, None].astype(object), y[:, None])
    own = TargetEncoder().fit(level[:, None], y).transform(level[:, None])
    assert np.corrcoef(own[:, 0], y)[0, 1] > 0.4
    assert abs(np.corrcoef(columns[:, 0], y)[0, 1]) < 4 / np.sqrt(N)


def test_the_fold_of_a_row_does_not_see_its_target():
    level = (np.arange(N) % 100)[:, None].astype(object)
    y = RNG.normal(size=(N, 1))
    before = LevelEncoder().fit_transform(level, y)
    high = y.copy()
    high[7] += 100
    after = LevelEncoder().fit_transform(level, high)
    assert after[7] - high.mean() == pytest.approx(before[7] - y.mean())
    assert (after != before).any()


def test_a_level_of_one_row_has_the_mean_of_all():
    """As a new level has: the mean of other folds would hold the row's own target."""
    y = RNG.normal(size=(N, 1))
    columns = LevelEncoder().fit_transform(np.arange(N)[:, None].astype(object), y)
    np.testing.assert_allclose(columns, y.mean(), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_levels_predict(kind):
    """As one column of rare levels, they would not."""
    train, y = TABLE[:200], targets(kind)[:200]
    estimator = make(kind, max_iter=20).fit(train, y)
    few = make(kind, max_iter=20, table_encoder=TableEncoder(max_categories=N_LEVELS)).fit(
        train, y
    )
    score, of_few = (each.score(TABLE[200:], targets(kind)[200:]) for each in (estimator, few))
    assert score > 0.6
    assert score > of_few


@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_the_means(kind, tmp_path):
    estimator = make(kind, max_iter=2).fit(TABLE, targets(kind))
    save(estimator, tmp_path / "model.safetensors")
    copied = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(copied.predict(TABLE[:9]), estimator.predict(TABLE[:9]))
    pd.testing.assert_frame_equal(encoded(copied), encoded(estimator))


def test_added_rows_are_encoded_as_queries():
    reg = NONARegressor(**QUICK, n_neighbors=1, adjust=False).fit(TABLE, Y)
    ids = reg.add_neighbors(TABLE[:3], [10.0, 20.0, 30.0])
    np.testing.assert_allclose(reg.predict(TABLE[:3]), [10, 20, 30])
    assert (reg.heaviest_neighbors(TABLE[:3], 1)[1].ravel() == ids).all()


@pytest.mark.slow
def test_several_outputs_and_classes_have_a_column_each():
    several = NONARegressor(**QUICK).fit(TABLE, np.column_stack([Y, -Y, Y**2]))
    assert list(encoded(several))[4:] == ["who_target0", "who_target1", "who_target2"]
    np.testing.assert_allclose(
        encoded(several)["who_target1"], -encoded(several)["who_target0"], atol=1e-6
    )
    classes = np.digitize(Y, [-2, 2])
    found = encoded(NONAClassifier(**QUICK).fit(TABLE, classes))
    for c in range(3):
        expected = TargetEncoder(target_type="continuous").fit(
            TABLE[["who"]], 1.0 * (classes == c)
        )
        np.testing.assert_allclose(
            found[f"who_target{c}"], expected.transform(TABLE[["who"]])[:, 0], atol=1e-6
        )
    assert list(encoded(NONAClassifier(**QUICK).fit(TABLE, Y > 0)))[4:] == ["who_target"]


def test_names_are_of_one_target_after_the_other():
    levels = np.array([["a", "x"], ["b", "y"]] * 3, dtype=object)
    encoder = LevelEncoder()
    encoder.fit_transform(levels, RNG.normal(size=(6, 2)))
    assert [*encoder.names(["p", "q"])] == ["p_target0", "q_target0", "p_target1", "q_target1"]


def test_of_many_classes_the_rare_levels_share_a_column():
    assert columns_of_targets(np.eye(17)) is None
    assert columns_of_targets(np.eye(16)).shape == (16, 16)
    assert columns_of_targets(np.eye(2)).tolist() == [[0], [1]]
    assert columns_of_targets(np.array([[0.5, 2.0]])).tolist() == [[0.5, 2.0]]


@pytest.mark.parametrize(
    "further", [{"groups": LEVEL}, {"times": np.arange(N)}], ids=["groups", "times"]
)
def test_with_groups_or_times_the_targets_are_not_used(further):
    """Of a new group, or of a later row, they would be known in training alone."""
    reg = NONARegressor(**QUICK).fit(TABLE, Y, **further)
    assert not any("target" in name for name in encoded(reg))


def test_the_encoder_alone_does_not_use_targets():
    encoder = TableEncoder(min_frequency=2)
    np.testing.assert_array_equal(
        encoder.fit_transform(TABLE, Y), TableEncoder(min_frequency=2).fit_transform(TABLE)
    )


@pytest.mark.parametrize(("most", "by_targets"), [(N_LEVELS - 1, True), (N_LEVELS, False)])
def test_max_categories_is_the_limit(most, by_targets):
    table = TABLE.assign(who=NAMES[np.arange(N) % N_LEVELS])
    reg = NONARegressor(table_encoder=TableEncoder(max_categories=most), **QUICK).fit(table, Y)
    assert ("who_target" in encoded(reg)) == by_targets
    with pytest.raises(ValueError, match="'max_categories' parameter of TableEncoder must be an"):
        NONARegressor(table_encoder=TableEncoder(max_categories=0)).fit(table, Y)


def test_levels_that_never_repeat_hold_nothing():
    table = TABLE.assign(who=[f"person {i}" for i in range(N)])
    with pytest.warns(UserWarning, match="'who' holds 300 categories in 300 rows, none of them"):
        reg = NONARegressor(**QUICK).fit(table, Y)
    assert "who_target" not in encoded(reg)


@pytest.mark.slow
def test_same_result_whatever_the_order_of_levels_and_the_seed():
    first, second = (
        encoded(NONARegressor(max_iter=2, n_estimators=1, random_state=seed).fit(TABLE, Y))
        for seed in (0, 1)
    )
    pd.testing.assert_frame_equal(first, second)
