"""Validation rows that the user chooses: a validation set, or a splitter."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from inner.data import N_BLOCKS, split_as_given, split_by_time
from inner.inference import calibration
from inner.training import refinement
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
    load,
    save,
)

X, Y = make_friedman1(180, noise=0.3, random_state=0)
TRAIN, VALID, TEST = slice(0, 100), slice(100, 150), slice(150, 180)
CLASSES = np.array(["low", "high"])[(np.median(Y) < Y).astype(int)]
SET = {"X_val": X[VALID], "y_val": Y[VALID]}
EARLIER = np.arange(100)


def small(kind=NONARegressor, **params):
    defaults = {"max_iter": 2, "random_state": 0}
    if kind in (NONARegressor, NONAClassifier):
        defaults["n_estimators"] = 2
    else:
        defaults["validation_fraction"] = 0.15
    return kind(**defaults | params)


def fitted(**options):
    return small().fit(X[TRAIN], Y[TRAIN], **SET | options)


@pytest.fixture(scope="module")
def reg():
    return fitted()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestValidationSet:
    def test_the_bank_holds_all_training_rows_and_no_other(self, reg):
        np.testing.assert_array_equal(reg.bank_.targets.numpy(), Y[TRAIN])
        assert reg.validation_indices_ == [None, None]

    def test_the_loss_is_that_of_the_validation_set(self):
        # Of one network, all of whose rows are neighbours: its last epoch's loss is that of the
        # average of the steps' weights, which predicts.
        one = small(n_estimators=1, n_neighbors=None, adjust=False, max_iter=1)
        one.fit(X[TRAIN], Y[TRAIN], **SET)
        spread = Y[TRAIN].std()
        with torch.no_grad():
            loss = np.mean((one.predict(X[VALID]) - Y[VALID]) ** 2) / spread**2
        # Temperature and shrinkage are chosen afterwards, and can only lower it.
        assert 0.5 * one.best_loss_ < loss <= one.best_loss_ * (1 + 1e-4)

    @pytest.mark.parametrize("name", ["X_val", "y_val"])
    def test_other_rows_give_another_model(self, reg, name):
        other = fitted(**{name: SET[name][::-1]})
        assert not np.array_equal(other.predict(X[TEST]), reg.predict(X[TEST]))

    def test_their_order_is_irrelevant_to_the_losses(self, reg):
        other = fitted(X_val=SET["X_val"][::-1], y_val=SET["y_val"][::-1])
        losses = [[epoch["valid_loss"] for epoch in each.history_] for each in (reg, other)]
        np.testing.assert_allclose(*losses, rtol=1e-4)

    def test_widths_are_calibrated_on_it(self):
        rng = np.random.default_rng(0)
        noise = rng.normal(scale=20, size=50)
        wide = fitted(y_val=SET["y_val"] + noise).predict_quantiles(X[TEST], [0.1, 0.9])
        narrow = fitted().predict_quantiles(X[TEST], [0.1, 0.9])
        assert np.diff(wide).mean() > 2 * np.diff(narrow).mean()

    @pytest.mark.parametrize(
        ("kind", "y"),
        [
            (NONARegressor, Y),
            (NONAClassifier, CLASSES),
            (SoftStepKNeighborsRegressor, Y),
            (SoftStepKNeighborsClassifier, CLASSES),
        ],
    )
    def test_what_would_set_rows_aside_has_no_effect(self, kind, y):
        fits = [
            small(kind, validation_fraction=each).fit(
                X[TRAIN], y[TRAIN], X_val=X[VALID], y_val=y[VALID]
            )
            for each in (None, 0.4, PredefinedSplit([0] * 50 + [-1] * 50))
        ]
        losses = [[epoch["valid_loss"] for epoch in each.history_] for each in fits]
        assert losses[0] == losses[1] == losses[2]
        for each in fits:
            assert {*each.validation_indices_} == {None}
            np.testing.assert_array_equal(each.predict(X[TEST]), fits[0].predict(X[TEST]))

    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.parametrize("weights", [None, 3.0])
    def test_few_rows_suffice(self, n, weights):
        options = {"sample_weight_val": weights and np.full(n, weights)}
        few = small().fit(X[TRAIN], Y[TRAIN], X_val=X[VALID][:n], y_val=Y[VALID][:n], **options)
        assert np.isfinite(few.predict_quantiles(X[TEST])).all()

    def test_rows_of_weight_0_are_as_if_they_were_not_given(self):
        weights = np.repeat([1.0, 0.0], 25)
        weighted = fitted(sample_weight_val=weights)
        few = fitted(X_val=SET["X_val"][:25], y_val=SET["y_val"][:25])
        np.testing.assert_array_equal(weighted.predict(X[TEST]), few.predict(X[TEST]))

    def test_a_weight_of_2_counts_as_two_rows(self):
        twice = np.repeat(np.arange(50), np.repeat([2, 1], 25))
        weighted = fitted(sample_weight_val=np.repeat([2.0, 1.0], 25))
        repeated = fitted(X_val=SET["X_val"][twice], y_val=SET["y_val"][twice])
        losses = [
            [epoch["valid_loss"] for epoch in each.history_] for each in (weighted, repeated)
        ]
        np.testing.assert_allclose(*losses, rtol=1e-4)

    def test_weights_of_training_rows_go_with_validation_rows_without(self):
        weights = np.linspace(1, 2, 100)
        weighted = fitted(sample_weight=weights)
        assert np.isfinite(weighted.predict(X[TEST])).all()

    @pytest.mark.parametrize("kind", [NONAClassifier, SoftStepKNeighborsClassifier])
    def test_of_classes(self, kind):
        options = {"X_val": X[VALID], "y_val": CLASSES[VALID]}
        clf = small(kind, class_weight="balanced").fit(X[TRAIN], CLASSES[TRAIN], **options)
        assert clf.score(X[TEST], CLASSES[TEST]) > 0.5
        assert len(clf.bank_) == 100

    def test_of_a_softstep_regressor(self):
        knn = small(SoftStepKNeighborsRegressor).fit(X[TRAIN], Y[TRAIN], **SET)
        assert len(knn.bank_) == 100
        assert all("valid_loss" in epoch for epoch in knn.history_)

    def test_of_several_outputs_by_name(self):
        frame = pd.DataFrame({"a": Y, "b": -Y})
        given = [small(), small()]
        given[0].fit(X[TRAIN], frame[TRAIN], X_val=X[VALID], y_val=frame[VALID])
        given[1].fit(X[TRAIN], frame[TRAIN], X_val=X[VALID], y_val=frame[VALID][["b", "a"]])
        np.testing.assert_array_equal(*(each.predict(X[TEST]) for each in given))

    def test_of_rows_for_a_feature_extractor(self):
        reg = small(feature_extractor=lambda: torch.nn.Linear(10, 8))
        reg.fit(X[TRAIN].astype("float32"), Y[TRAIN], **SET | {"X_val": X[VALID].astype("f4")})
        assert len(reg.bank_) == 100
        assert all("valid_loss" in epoch for epoch in reg.history_)

    def test_of_a_torch_dataset(self):
        rows = torch.from_numpy(X).float()
        pairs = [
            torch.utils.data.TensorDataset(rows[each], torch.from_numpy(Y[each]))
            for each in (TRAIN, VALID)
        ]
        reg = small(feature_extractor=lambda: torch.nn.Linear(10, 8))
        reg.fit(pairs[0], None, X_val=pairs[1])
        assert len(reg.bank_) == 100

    def test_is_later_than_times_of_an_array(self):
        timed = fitted(times=EARLIER)
        assert np.isfinite(timed.predict(X[TEST])).all()
        assert timed.bank_.neighbors.times.tolist() == EARLIER.tolist()

    def test_has_times_of_its_own_in_a_column(self):
        frame = pd.DataFrame(X).add_prefix("x").assign(day=np.arange(180))
        timed = small(n_estimators=1)
        # Rows before the bank have no neighbour, and no loss.
        with pytest.raises(ValueError, match="X_val must have rows that a row of X is earlier"):
            clone(timed).set_params(max_iter=10**9).fit(
                frame[100:], Y[100:], times="day", X_val=frame[:100], y_val=Y[:100]
            )
        known = timed.fit(frame[40:], Y[40:], times="day", X_val=frame[:50], y_val=Y[:50])
        only = clone(timed).fit(
            frame[40:], Y[40:], times="day", X_val=frame[41:50], y_val=Y[41:50]
        )
        found = known.predict(frame[TEST])
        np.testing.assert_allclose(found, only.predict(frame[TEST]), rtol=1e-12)
        timed.fit(frame[TRAIN], Y[TRAIN], times="day", X_val=frame[VALID], y_val=Y[VALID])
        assert np.isfinite(timed.predict(frame[TEST])).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestAddValidation:
    def test_rows_join_the_bank_as_by_add_neighbors(self, reg):
        joined = fitted(add_validation=True)
        later = fitted()
        ids = later.add_neighbors(X[VALID], Y[VALID])
        np.testing.assert_array_equal(joined.bank_.ids[100:], ids)
        np.testing.assert_array_equal(joined.predict(X[TEST]), later.predict(X[TEST]))
        assert joined.calibration_ == reg.calibration_

    def test_with_names_and_weights(self):
        frame = pd.DataFrame(X, index=[f"row {i}" for i in range(180)])
        joined = small().fit(
            frame[TRAIN],
            Y[TRAIN],
            X_val=frame[VALID],
            y_val=Y[VALID],
            sample_weight_val=np.arange(50.0),
            add_validation=True,
        )
        assert joined.bank_.names[100] == "row 101"  # the first has no weight
        prior = joined.bank_.neighbors.log_prior
        np.testing.assert_allclose(prior[100:].exp(), np.arange(1, 50), rtol=1e-5)

    def test_with_the_times_of_a_column(self):
        frame = pd.DataFrame(X).add_prefix("x").assign(day=np.arange(180))
        options = {"times": "day", "X_val": frame[VALID], "add_validation": True}
        joined = small().fit(frame[TRAIN], Y[TRAIN], y_val=Y[VALID], **options)
        assert joined.bank_.neighbors.times.tolist() == list(range(150))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestSplitter:
    def test_a_predefined_split_is_taken_by_each_network(self):
        fold = np.repeat([-1, 0], 75)
        reg = small(validation_fraction=PredefinedSplit(fold)).fit(X[:150], Y[:150])
        for rows in reg.validation_indices_:
            np.testing.assert_array_equal(np.sort(rows), np.arange(75, 150))
        assert len(reg.bank_) == 150

    def test_networks_take_splits_in_turn(self):
        reg = small(n_estimators=3, validation_fraction=KFold(2)).fit(X, Y)
        first = [np.sort(rows)[0] for rows in reg.validation_indices_]
        assert first == [0, 90, 0]

    def test_of_rows_of_positive_weight(self):
        fold, weights = np.tile([-1, 0], 90), np.repeat([1.0, 0.0], 90)
        reg = small(validation_fraction=PredefinedSplit(fold)).fit(X, Y, sample_weight=weights)
        np.testing.assert_array_equal(np.sort(reg.validation_indices_[0]), np.arange(1, 90, 2))

    def test_receives_targets_and_groups(self):
        clf = small(NONAClassifier, validation_fraction=StratifiedKFold(3)).fit(X, CLASSES)
        shares = [np.mean(CLASSES[rows] == "low") for rows in clf.validation_indices_]
        np.testing.assert_allclose(shares, 0.5, atol=0.02)
        groups = np.arange(180) // 6
        reg = small(validation_fraction=GroupKFold(3)).fit(X, Y, groups=groups)
        for rows in reg.validation_indices_:
            assert len(np.unique(groups[rows])) * 6 == len(rows)

    def test_with_times_validation_rows_have_training_rows_before_them_alone(self):
        times = np.arange(180)
        splitter = TimeSeriesSplit(2, gap=5)
        reg = small(validation_fraction=splitter).fit(X, Y, times=times)
        for rows, (_, valid) in zip(reg.validation_indices_, splitter.split(X), strict=True):
            np.testing.assert_array_equal(np.sort(rows), valid)
        assert np.isfinite(reg.predict_quantiles(X[TEST])).all()

    def test_the_last_splits_are_taken(self):
        splitter = TimeSeriesSplit(4)
        reg = small(n_estimators=1, validation_fraction=splitter).fit(X, Y)
        *_, (_, valid) = splitter.split(X)
        np.testing.assert_array_equal(np.sort(reg.validation_indices_[0]), valid)

    def test_rows_before_all_others_do_not_validate(self):
        reg = small(validation_fraction=KFold(3)).fit(X, Y, times=np.arange(180)[::-1])
        # Rows of the last fold are the earliest.
        assert [rows.min() for rows in reg.validation_indices_] == [60, 60]
        alone = PredefinedSplit(np.repeat([-1, 0], 90))
        with pytest.raises(ValueError, match="a validation row later than a training row, got no"):
            small(validation_fraction=alone).fit(X, Y, times=np.arange(180)[::-1])

    def test_is_cloned_and_searched(self):
        search = GridSearchCV(
            small(), {"validation_fraction": [0.2, KFold(3)], "n_neighbors": [20]}, cv=2
        )
        search.fit(X, Y)
        assert len(search.cv_results_["params"]) == 2
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()


class Without:
    """A splitter that has no split."""

    def split(self, X, y=None, groups=None):
        return iter(())

    def get_n_splits(self, X=None, y=None, groups=None):
        return 0


class Leaking(Without):
    """A splitter with a row on both sides."""

    def split(self, X, y=None, groups=None):
        yield np.arange(50), np.arange(49, 60)


@dataclass
class Junk(Without):
    """A splitter that yields what is no split."""

    found: object

    def split(self, X, y=None, groups=None):
        yield self.found


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"X_val": None}, "X_val must be given with y_val"),
            ({"X_val": None, "y_val": None, "sample_weight_val": [1.0]}, "X_val must be given"),
            ({"add_validation": "yes"}, "add_validation must be"),
            ({"X_val": None, "y_val": None, "add_validation": True}, "X_val must be given"),
            ({"y_val": None}, "y_val must be given with X_val"),
            ({"X_val": X[VALID, :3]}, "X_val, y_val: X has 3 features, but .* expecting 10"),
            ({"X_val": X[VALID][:0], "y_val": []}, "X_val, y_val: Found array with 0 sample"),
            ({"y_val": Y[:7]}, "X_val, y_val: .*X has 50, y has 7"),
            ({"y_val": np.full(50, np.nan)}, "X_val, y_val: Input y contains NaN"),
            ({"y_val": np.c_[Y, Y][VALID]}, "X_val, y_val: y must have the bank's shape"),
            ({"sample_weight_val": -np.ones(50)}, "X_val, y_val: sample_weight must be finite"),
            ({"sample_weight_val": np.zeros(50)}, "X_val, y_val: sample_weight must be above 0"),
            ({"sample_weight_val": np.ones(3)}, "X_val, y_val: sample_weight must have shape"),
        ],
    )
    def test_a_validation_set_is_checked_before_training(self, options, message):
        with pytest.raises(ValueError, match=message):
            small(max_iter=10**9).fit(X[TRAIN], Y[TRAIN], **SET | options)

    def test_a_sparse_validation_set(self, reg):
        same = fitted(X_val=csr_array(X[VALID]))
        np.testing.assert_array_equal(same.predict(X[TEST]), reg.predict(X[TEST]))
        gaps = {"X_val": csr_array(np.full((50, 10), np.nan))}
        with pytest.raises(ValueError, match="X_val, y_val: a sparse X must hold finite numbers"):
            small(max_iter=10**9).fit(X[TRAIN], Y[TRAIN], **SET | gaps)

    def test_another_column(self):
        frame = pd.DataFrame(X).add_prefix("x")
        wrong = frame[VALID].rename(columns={"x3": "area"})
        with pytest.raises(ValueError, match=r"X_val, y_val: .*feature names(.|\n)*area"):
            small(max_iter=10**9).fit(frame[TRAIN], Y[TRAIN], X_val=wrong, y_val=Y[VALID])

    def test_an_unknown_class(self):
        with pytest.raises(ValueError, match=r"X_val, y_val: .*'other'"):
            small(NONAClassifier, max_iter=10**9).fit(
                X[TRAIN], CLASSES[TRAIN], X_val=X[VALID], y_val=np.full(50, "other")
            )

    def test_rows_without_a_time_cannot_join(self):
        with pytest.raises(ValueError, match="add_validation=True needs the times of X_val"):
            fitted(times=EARLIER, add_validation=True)

    @pytest.mark.parametrize(
        ("splitter", "message"),
        [
            (Without(), "must have a split, got none"),
            (Leaking(), "a row in training and validation"),
            (Junk(None), "splits into arrays of training and validation rows, got None"),
            (Junk((np.arange(3),)), "splits into arrays of training and validation rows"),
            (Junk((np.arange(3), np.array(["a"]))), "splits into arrays of training"),
            (Junk((np.arange(3), np.array([-1]))), "must have splits of 180 rows, got row -1"),
            (
                PredefinedSplit(np.zeros(180, dtype=int)),
                "at least 2 training rows .*got 0 and 180",
            ),
            (
                PredefinedSplit(np.repeat([-1, 0], 100)),
                "must have splits of 180 rows, got row 199",
            ),
            (KFold(181), "Cannot have number of splits"),
            ("half", "validation_fraction"),
            (0.0, "validation_fraction"),
        ],
    )
    def test_a_splitter_is_checked_before_training(self, splitter, message):
        with pytest.raises(ValueError, match=message):
            small(max_iter=10**9, validation_fraction=splitter).fit(X, Y)

    @pytest.mark.filterwarnings("ignore:The groups parameter is ignored:UserWarning")
    def test_a_splitter_may_not_part_groups(self):
        reg = small(max_iter=10**9, validation_fraction=KFold(2, shuffle=True, random_state=0))
        with pytest.raises(ValueError, match="a group in training and validation"):
            reg.fit(X, Y, groups=np.arange(180) // 6)

    def test_a_failed_fit_leaves_the_estimator_as_it_was(self, reg):
        before = reg.predict(X[TEST])
        with pytest.raises(ValueError, match="X_val"):
            reg.fit(X[TRAIN], Y[TRAIN], X_val=X[VALID], y_val=Y[:7])
        np.testing.assert_array_equal(reg.predict(X[TEST]), before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_search_and_a_pipeline_pass_it_on():
    with sklearn.config_context(enable_metadata_routing=True):
        own = small().set_fit_request(X_val=True, y_val=True)
        pipe = make_pipeline(StandardScaler(), own, transform_input=["X_val"])
        search = GridSearchCV(pipe, {"nonaregressor__n_neighbors": [10, 20]}, cv=2)
        search.fit(X[TRAIN], Y[TRAIN], **SET)
    best = search.best_estimator_[-1]
    assert best.validation_indices_ == [None, None]
    assert len(best.bank_) == 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_splitter_is_given_again_where_a_file_is_loaded(tmp_path):
    reg = small(validation_fraction=KFold(2)).fit(X, Y)
    path = tmp_path / "model.nona"
    save(reg, path)
    with pytest.raises(TypeError, match=r"needs validation_fraction.*KFold\(n_splits=2"):
        load(path)
    again = load(path, validation_fraction=KFold(2))
    np.testing.assert_array_equal(again.predict(X[TEST]), reg.predict(X[TEST]))


def losses(est, name="valid_loss"):
    return [epoch[name] for epoch in est.history_]


class TestSplits:
    def test_limits_are_after_the_last_earlier_training_row(self):
        rng = np.random.RandomState(0)
        times = rng.randint(0, 30, 90).astype(float)  # some moments have rows on both sides
        train, valid = np.sort(rng.permutation(90)[:60]), np.sort(rng.permutation(90)[60:])
        train = np.setdiff1d(train, valid)
        (split,) = split_as_given([(train, valid)], np.arange(90), None, times, 1, rng)
        np.testing.assert_array_equal(np.sort(split.train), train)
        assert (np.diff(split.train) < 0).any()  # they are shuffled
        for limit, moment in zip(split.cutoff_times, times[split.valid], strict=True):
            last = max(times[train][times[train] < moment])
            np.testing.assert_array_equal(times < limit, times <= last)

    @pytest.mark.parametrize(
        ("train", "valid", "message"),
        [
            (range(5), [180], "splits of 180 rows, got row 180"),
            ([0, 200], [5], "splits of 180 rows, got row 200"),
            ([0], [5], "got 1 and 1"),
            (range(5), np.arange(0), "got 5 and 0"),
        ],
    )
    def test_bad_splits_are_named(self, train, valid, message):
        pair = np.array(train), np.array(valid)
        with pytest.raises(ValueError, match=message):
            split_as_given([pair], np.arange(180), None, None, 1, np.random.RandomState(0))

    @pytest.mark.parametrize(
        ("n_moments", "fraction"), [(3, 0.9), (20, 0.15), (50, 0.3), (200, 0.9)]
    )
    def test_blocks_of_time(self, n_moments, fraction):
        times = np.repeat(np.arange(float(n_moments)), 2)
        n_blocks = min(N_BLOCKS, n_moments)
        n_valid = min(max(1, round(fraction * n_blocks)), n_blocks - 2)
        splits = split_by_time(times, 2, fraction, np.random.RandomState(0))
        starts = [np.unique(split.cutoff_times) for split in splits]
        assert [len(each) for each in starts] == [n_valid, n_valid]
        if 2 * n_valid < n_blocks:  # a quarter is shared
            assert len(np.intersect1d(*starts)) == n_valid - np.ceil(0.75 * n_valid)

    def test_later_rows_choose_nothing(self):
        """The last rows are copies of the validation rows, the nearest of all rows."""
        rng = np.random.RandomState(0)
        features, y = rng.normal(size=(140, 3)), rng.normal(size=140)
        features[110:] = features[80:110]
        fold = np.where((np.arange(140) >= 80) & (np.arange(140) < 110), 0, -1)
        fits = [
            small(
                n_estimators=1, adjust=False, training=TrainingOptions(learning_rate_init=1e-12)
            ).set_params(validation_fraction=PredefinedSplit(fold))
            for _ in range(2)
        ]
        for reg, later in zip(fits, [y[80:110], y[80:110][::-1]], strict=True):
            reg.fit(features, np.append(y[:110], later), times=np.arange(140.0))
        assert fits[0].n_neighbors_ == fits[1].n_neighbors_
        np.testing.assert_allclose(*map(losses, fits), rtol=1e-4)
        heads = [reg.network_.head.state_dict() for reg in fits]
        for name in heads[0]:
            np.testing.assert_allclose(heads[0][name], heads[1][name], rtol=1e-4)

    def test_validation_rows_are_not_trained_on(self):
        fold, other = np.repeat([-1, 0], 90), Y.copy()
        other[90:] = other[90:][::-1]
        splitter = PredefinedSplit(fold)
        fits = [small(max_iter=1, validation_fraction=splitter).fit(X, y) for y in (Y, other)]
        np.testing.assert_allclose(*(losses(reg, "train_loss") for reg in fits), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestWeights:
    def test_class_weights_are_sample_weights(self):
        weights = np.where(CLASSES == "low", 3.0, 1.0)
        options = {"X_val": X[VALID], "y_val": CLASSES[VALID], "add_validation": True}
        by_class = small(NONAClassifier, class_weight={"low": 3.0, "high": 1.0})
        by_class.fit(X[TRAIN], CLASSES[TRAIN], **options)
        options |= {"sample_weight": weights[TRAIN], "sample_weight_val": weights[VALID]}
        by_row = small(NONAClassifier).fit(X[TRAIN], CLASSES[TRAIN], **options)
        np.testing.assert_allclose(losses(by_class), losses(by_row), rtol=1e-5)
        np.testing.assert_allclose(
            by_class.predict_proba(X[TEST]), by_row.predict_proba(X[TEST]), rtol=1e-4
        )

    def test_rows_that_join_have_the_unit_of_fit(self):
        weights = np.linspace(1, 4, 150)
        reg = fitted(
            sample_weight=weights[TRAIN], sample_weight_val=weights[VALID], add_validation=True
        )
        prior = reg.bank_.neighbors.log_prior.exp()
        np.testing.assert_allclose(prior / prior[0], weights / weights[0], rtol=1e-5)

    def test_light_rows_choose_and_calibrate_nothing(self):
        light = np.arange(50) < 25
        noisy = Y[VALID] + 100 * light * np.random.RandomState(0).normal(size=50)
        weights, own = np.where(light, 1e-9, 1.0), {"n_neighbors": 20}
        fits = [
            small(**own).fit(X[TRAIN], Y[TRAIN], X_val=X[VALID], y_val=noisy, sample_weight_val=w)
            for w in (weights, 7 * weights)
        ]
        few = small(**own).fit(X[TRAIN], Y[TRAIN], X_val=X[VALID][25:], y_val=Y[VALID][25:])
        np.testing.assert_allclose(fits[0].predict(X[TEST]), few.predict(X[TEST]), rtol=1e-4)
        widths = [np.diff(reg.predict_quantiles(X[TEST], [0.1, 0.9])).mean() for reg in fits]
        expected = np.diff(few.predict_quantiles(X[TEST], [0.1, 0.9])).mean()
        np.testing.assert_allclose(widths, expected, rtol=0.1)
        np.testing.assert_allclose(*(reg.calibration_.noise for reg in fits), rtol=1e-6)

    def test_rows_without_earlier_ones_have_no_weight(self):
        frame = pd.DataFrame(X).add_prefix("x").assign(day=np.arange(180))
        frame.loc[100:104, "day"] = -1
        options = {"times": "day", "sample_weight_val": np.linspace(1, 2, 50)}
        reg = small().fit(frame[TRAIN], Y[TRAIN], X_val=frame[VALID], y_val=Y[VALID], **options)
        assert np.isfinite(reg.predict_quantiles(frame[TEST])).all()


def test_errors_are_wider_where_the_rows_chose_the_number_of_neighbors(reg, monkeypatch):
    found = []
    monkeypatch.setattr(calibration, "fit_calibration", lambda *a: found.append(a[1]))
    query, truth = reg.embed(X[VALID]), torch.from_numpy(Y[VALID])
    for chose in (False, True):
        calibration.calibrate_on_rows(
            reg.network_.head, reg.bank_, query, truth, chose_n_neighbors=chose
        )
    np.testing.assert_allclose(found[0][:, 0], Y[VALID] - reg.predict(X[VALID]))
    torch.testing.assert_close(found[1], found[0] * (1 + 5 / 50) ** 0.5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_neighbors", ["auto", 20])
def test_the_validation_set_calibrates(n_neighbors):
    reg = small(n_neighbors=n_neighbors).fit(X[TRAIN], Y[TRAIN], **SET)
    query, truth = reg.embed(X[VALID]), torch.from_numpy(Y[VALID])
    chose = n_neighbors == "auto"
    assert reg.calibration_ == calibration.calibrate_on_rows(
        reg.network_.head, reg.bank_, query, truth, chose_n_neighbors=chose
    )


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
def test_validation_rows_have_their_own_times(monkeypatch):
    found = []

    def stop(*args, valid, **options):
        found.append(valid.times)
        raise KeyboardInterrupt

    monkeypatch.setattr("inner.estimators.fitting.train_networks", stop)
    frame = pd.DataFrame(X).add_prefix("x").assign(day=np.arange(180))
    for rows in (frame[VALID], frame[VALID].to_numpy()):
        with pytest.raises(KeyboardInterrupt):
            small().fit(frame[TRAIN], Y[TRAIN], times="day", X_val=rows, y_val=Y[VALID])
        assert found.pop().tolist() == list(range(100, 150))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_validation_set_chooses_the_number_of_neighbors(monkeypatch):
    found, refine = [], refinement.refine

    def noted(evaluation, loss, truth, *weights, **options):
        found.append(truth)
        refine(evaluation, loss, truth, *weights, **options)

    monkeypatch.setattr(refinement, "refine", noted)
    fitted()
    expected = (Y[VALID] - Y[TRAIN].mean()) / Y[TRAIN].std()
    assert len(found) == 2  # once for each network
    for truth in found:
        np.testing.assert_allclose(truth, expected, rtol=1e-5, atol=1e-6)
