"""A model as trend where rows are found among the features: G is of networks and of the model."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import TableRows
from inner.estimators import trained
from inner.inference import NetworkTrend, with_numbers
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from nona_sklearn import (
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    TrainingOptions,
    counterfactuals,
    explore,
    export_onnx,
    save,
    save_shards,
)

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=120),
        "age": RNG.normal(size=120),
        "kind": pd.Categorical(RNG.choice(["flat", "house", "villa"], size=120)),
    }
)
Y = 3 * TABLE["size"].to_numpy() - TABLE["age"].to_numpy() + TABLE["kind"].cat.codes.to_numpy()
Y = Y + np.sin(3 * TABLE["age"].to_numpy()) + 0.1 * RNG.normal(size=120)
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, [0, 2])]
X, QUERIES = TABLE[:90], TABLE[90:]
KINDS = [
    *(NONARegressor, NONAClassifier),
    *(SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier),
]


class Fixed(RegressorMixin, BaseEstimator):
    """Predicts the same whatever it is fitted to."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return 2 * np.asarray(X)[:, 0].astype(float)


def as_rows(table):
    return TableRows(torch.zeros(len(table), 0), table)


def classifies(kind):
    return kind in (NONAClassifier, SoftStepKNeighborsClassifier)


def piped(kind=NONARegressor):
    return make_pipeline(TableEncoder(), LogisticRegression() if classifies(kind) else Ridge())


def model_of(kind=NONARegressor, **params):
    settings = {"max_iter": 6, "random_state": 0, "trend": piped(kind)}
    if kind in (NONARegressor, NONAClassifier):
        settings |= {"n_estimators": 2, "hidden_layer_sizes": (8,)}
    return kind(**(settings | params))


def fit(model, X=X, y=None, **parts):
    y = y if y is not None else (LABELS if classifies(type(model)) else Y)[:90]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of training that has not converged
        return model.fit(X, y, **parts)


@pytest.fixture(scope="module")
def fitted():
    return fit(model_of())


@pytest.fixture(scope="module", params=KINDS)
def each(request):
    return fit(model_of(request.param))


def answers(model, rows):
    return model.predict_proba(rows) if classifies(type(model)) else model.predict(rows)


def inner(model, share):
    """G with another share of the model, and without residuals of rows."""
    network, bank = trained(model)
    numbers = {"share": share, "kept": 0.0, "trust_radius": np.inf}
    return NetworkTrend.from_bank(network, with_numbers(bank, **numbers))


# -- predictions --------------------------------------------------------------------------------


def test_a_prediction_is_by_hand_that_of_networks_the_model_and_rows(fitted):
    """G = (1 - a) networks + a f, and G(q) + c sum_j w_j (y_j - G_-j(j))."""
    assert fitted.similarity_ == "features"
    alone, bank = inner(fitted, 0.0), trained(fitted)[1]
    share, kept = bank.neighbors.offset.share, fitted.bank_.neighbors.offset.kept
    assert 0.1 < share < 1
    assert kept > 0
    of_model = piped().fit(X, Y[:90]).predict(QUERIES)
    folds = KFold(5, shuffle=True, random_state=0)
    at_rows = cross_val_predict(piped(), X, Y[:90], cv=folds)
    networks = alone(fitted.embed(QUERIES).inputs).numpy()[:, 0]
    G = (1 - share) * networks + share * of_model
    left_out = (1 - share) * alone.left_out.numpy()[:, 0] + share * at_rows
    expected = G + kept * fitted.neighbor_weights(QUERIES) @ (Y[:90] - left_out)
    np.testing.assert_allclose(fitted.predict(QUERIES), expected, rtol=1e-6)


def test_a_share_of_1_is_the_model(each):
    """Of classes, calibrated."""
    trend = inner(each, 1.0)
    found = trend(each.embed(QUERIES).inputs)
    torch.testing.assert_close(found, trend.bank.trend(as_rows(QUERIES)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_names_the_same_rows_by_the_same_weights(kind):
    """In small batches: in one batch, training of SoftStep k-NN has nothing random."""
    small = TrainingOptions(batch_size=16)
    one, other = (fit(model_of(kind, random_state=seed, training=small)) for seed in (0, 1))
    ours, theirs = (model.neighbor_weights(QUERIES).toarray() for model in (one, other))
    np.testing.assert_array_equal(ours, theirs)
    assert abs(answers(one, QUERIES) - answers(other, QUERIES)).max() > 1e-5


def test_leaving_a_row_out_is_removing_it():
    model = fit(model_of(trend=Fixed()))
    left_out = model.predict(None)
    for row in (0, 40, 89):
        without = copy.deepcopy(model).remove_neighbors(ids=[row])
        assert without.predict(X[row : row + 1])[0] == pytest.approx(left_out[row], rel=1e-5)


def test_many_queries_and_other_orders_of_columns(fitted):
    many = pd.concat([QUERIES] * 150, ignore_index=True)
    expected = np.tile(fitted.predict(QUERIES), 150)
    np.testing.assert_allclose(fitted.predict(many), expected, rtol=1e-6)
    embedded = fitted.embed(many)
    np.testing.assert_allclose(fitted.predict(embedded), expected, rtol=1e-6)
    some = embedded[np.array([4, 1])]
    np.testing.assert_allclose(fitted.predict(some), expected[[4, 1]], rtol=1e-6)
    np.testing.assert_allclose(fitted.predict(many[["kind", "age", "size"]]), expected, rtol=1e-6)


# -- edits --------------------------------------------------------------------------------------


def test_rows_are_added_with_the_values_of_the_model_and_leave_again(each):
    model, before = copy.deepcopy(each), answers(each, QUERIES)
    targets = (LABELS if classifies(type(each)) else Y)[90:]
    ids = model.add_neighbors(QUERIES, targets)
    bank = trained(model)[1]
    expected = trained(each)[1].trend(as_rows(QUERIES))
    torch.testing.assert_close(bank.neighbors.offset.values[90:], expected)
    assert len(bank.inputs) == len(model.bank_.inputs) == 120
    assert (answers(model, QUERIES) != before).any()
    model.remove_neighbors(ids=ids)
    np.testing.assert_allclose(answers(model, QUERIES), before, rtol=1e-6)


def test_a_removed_row_stays_known_to_the_model_alone(fitted):
    model = copy.deepcopy(fitted)
    model.remove_neighbors(ids=[3, 50])
    bank, kept = trained(model)[1], np.setdiff1d(np.arange(90), [3, 50])
    of_model = trained(fitted)[1].neighbors.offset.values[kept]
    assert torch.equal(bank.neighbors.offset.values[:], of_model)
    assert not np.isin([3, 50], bank.trend.ids).any()
    assert not torch.equal(
        model.bank_.neighbors.offset.values[:], fitted.bank_.neighbors.offset.values[kept]
    )


def test_fewer_rows_have_the_same_G_and_other_targets_none(each):
    few = copy.deepcopy(each).compress(20)
    inputs = each.embed(QUERIES).inputs
    torch.testing.assert_close(few.bank_.trend(inputs), each.bank_.trend(inputs))
    few.remove_neighbors(ids=few.bank_.ids[:3])
    assert np.isfinite(answers(few, QUERIES)).all()
    if not classifies(type(each)):
        plain = copy.deepcopy(each).set_neighbor_targets(np.arange(90.0))
        expected = plain.neighbor_weights(QUERIES) @ np.arange(90.0)
        np.testing.assert_allclose(plain.predict(QUERIES), expected, rtol=1e-6)


# -- relations of rows ----------------------------------------------------------------------------


def test_values_at_rows_are_of_other_groups():
    groups = np.arange(90) // 3
    model = fit(model_of(), groups=groups)
    share = trained(model)[1].neighbors.offset.share
    at_rows = cross_val_predict(piped(), X, Y[:90], groups=groups, cv=GroupKFold(5))
    network, bank = trained(model)
    networks = with_numbers(bank, share=0.0).evaluate(network.head, leave_out="group").mean()
    expected = (1 - share) * networks.numpy() + share * at_rows
    found = model.bank_.neighbors.offset.values.numpy()[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["times", "column of times", "weights", "validation"])
def test_rows_with_times_weights_or_a_validation_set(kind):
    parts, table, queries, trend = {}, X, QUERIES, piped()
    if kind == "times":
        parts = {"times": np.arange(90.0)}
    if kind == "column of times":
        table, queries = X.assign(day=np.arange(90.0)), QUERIES.assign(day=np.linspace(20, 99, 30))
        parts = {"times": "day"}
    if kind == "weights":
        parts, trend = {"sample_weight": np.arange(90) % 3}, Ridge()
        table, queries = X[["size", "age"]], QUERIES[["size", "age"]]
    if kind == "validation":
        table, others = X[:60], np.c_[Y, -Y][60:90]
        parts = {"X_val": X[60:], "y_val": others, "add_validation": True}
    y = np.c_[Y, -Y][: len(table)]
    half_life = 50.0 if kind == "times" else None
    model = model_of(similarity="features", trend=trend, half_life=half_life)
    model = fit(model, table, y, **parts)
    assert len(model.bank_) == len(trained(model)[1]) == (60 if kind == "weights" else 90)
    found, sums = model.explain(queries), model.predict(queries)
    for i in (0, 1):
        total = found[f"contribution_{i}"].groupby(found["query"], sort=False).sum()
        np.testing.assert_allclose(total, sums[:, i], rtol=1e-6)
    assert np.isfinite(model.predict(None)[1:]).all()


# -- what looks at a fitted model -----------------------------------------------------------------


def test_parts_of_predictions_and_adjustments_sum(fitted):
    for queries in (QUERIES, None):
        found = fitted.attribute(queries, of="predictions")
        parts = found[["mean", *TABLE, "interplay"]].sum(axis=1)
        np.testing.assert_allclose(parts, found["prediction"], rtol=1e-9)
        np.testing.assert_allclose(found["prediction"], fitted.predict(queries), rtol=1e-9)
        moved = fitted.attribute(queries, X, n_neighbors=3)
        parts = moved[["target", *TABLE, "interplay", "other"]].sum(axis=1)
        np.testing.assert_allclose(parts, moved["adjusted_target"], rtol=1e-9)
    assert np.corrcoef(found["size"], X["size"])[0, 1] > 0.9


def test_importances_are_of_the_columns_that_the_model_uses():
    """With networks that have learned nothing, "age" is of the model alone."""
    y, options = X["age"].to_numpy(), TrainingOptions(learning_rate_init=1e-9)
    with_model = fit(model_of(training=options, max_iter=1), y=y)
    size, age, kind = with_model.feature_importances_
    assert age > 5 * max(size, kind)
    edited = copy.deepcopy(with_model).remove_neighbors(ids=[0])
    np.testing.assert_array_equal(edited.feature_importances_, with_model.feature_importances_)


def test_influence_is_the_change_without_a_row_by_the_same_model():
    model = fit(model_of(trend=Fixed()))
    found = model.influence(QUERIES[:4]).set_index("id")["change"]
    for row in (0, int(found.idxmax())):
        without = copy.deepcopy(model).remove_neighbors(ids=[row])
        change = (without.predict(QUERIES[:4]) - model.predict(QUERIES[:4])) ** 2
        assert found[row] == pytest.approx(np.sqrt(change.mean()), rel=0.02, abs=1e-6)


def test_pages_counterfactuals_and_stability(each, tmp_path):
    assert "<article" in NeighborsReport(each, QUERIES[:1], features=X)._repr_html_()
    explore(each, QUERIES[:5], features=X).save(tmp_path / "page")
    steady = each.neighbor_stability(QUERIES[:5], n_refits=3, n_neighbors=4)
    assert steady["selection_frequency"].max() == 1
    assert len(each.influence(QUERIES)) == 90
    wanted = {"y": "high"} if classifies(type(each)) else {"at_least": Y.mean()}
    own = each.predict(QUERIES)
    others = own != "high" if classifies(type(each)) else own < Y.mean()
    found = counterfactuals(each, QUERIES[others][:1], X, **wanted)
    assert len(found) > 0


def test_unknown_levels_widen_distributions(fitted):
    assert fitted.bank_.unknown_levels.shares[0][0] > 0
    low, high = fitted.predict_quantiles(QUERIES, (0.05, 0.95)).T
    castle = QUERIES.assign(kind=pd.Categorical(["castle"] * 30))
    wide_low, wide_high = fitted.predict_quantiles(castle, (0.05, 0.95)).T
    assert (wide_high - wide_low > high - low).all()


def test_pickles_keep_it_and_files_of_numbers_refuse_it(each, tmp_path):
    again = pickle.loads(pickle.dumps(each))
    np.testing.assert_array_equal(answers(again, QUERIES), answers(each, QUERIES))
    message = "trend must be no model for {}, got Pipeline"
    with pytest.raises(TypeError, match=message.format("a file without code")):
        save(each, tmp_path / "model.nona")
    with pytest.raises(TypeError, match=message.format("an ONNX graph")):
        export_onnx(each, tmp_path / "model.onnx")
    with pytest.raises(TypeError, match="trend must be no model for shards"):
        save_shards(each, tmp_path / "shards", 2)
    assert not [*tmp_path.iterdir()]


def test_a_warm_start_fits_it_anew():
    model = fit(model_of(warm_start=True))
    expected = fit(model_of(), y=-Y[:90])
    fit(model, y=-Y[:90])
    ours, theirs = (trained(one)[1].trend(as_rows(QUERIES)) for one in (model, expected))
    torch.testing.assert_close(ours, theirs)
