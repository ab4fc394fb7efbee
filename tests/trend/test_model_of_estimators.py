"""Estimators whose predictions a regressor is a part of, with rows of the learned space."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from inner.data import TableRows
from inner.inference import with_numbers
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor
from torch import nn

from nona_sklearn import (
    NeighborsReport,
    NONARegressor,
    TableEncoder,
    counterfactuals,
    explore,
    export_onnx,
    load,
    save,
    save_shards,
)

RNG = np.random.default_rng(0)
SIZE = 120
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=SIZE),
        "age": RNG.normal(size=SIZE),
        "kind": pd.Categorical(RNG.choice(["flat", "house", "villa"], size=SIZE)),
    }
)
Y = 3 * TABLE["size"].to_numpy() - TABLE["age"].to_numpy() + TABLE["kind"].cat.codes.to_numpy()
Y = pd.Series(Y + 0.1 * RNG.normal(size=SIZE), name="price")
QUERIES = TABLE[90:]


def as_rows(table):
    return TableRows(torch.zeros(len(table), 0), table)


def nona(trend=None, **params):
    trend = make_pipeline(TableEncoder(), Ridge()) if trend is None else trend
    settings = {"n_estimators": 2, "hidden_layer_sizes": (8,), "max_iter": 6, "random_state": 0}
    return NONARegressor(**(settings | {"trend": trend, "similarity": "l2"} | params))


def fit(model, X=TABLE[:90], y=Y[:90], **parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of training that has not converged
        return model.fit(X, y, **parts)


@pytest.fixture(scope="module")
def fitted():
    return fit(nona())


def with_share_of(model, share):
    changed = copy.deepcopy(model)
    changed.bank_ = with_numbers(changed.bank_, share=share)
    return changed


def test_a_prediction_is_the_networks_and_the_model_with_residuals_of_neighbours(fitted):
    """(1 - a) networks + a (f(q) + 0.2 sum_j w_j (y_j - f_-j(j)))."""
    share, values = fitted.bank_.neighbors.offset.share, fitted.bank_.neighbors.offset.values
    function = make_pipeline(TableEncoder(), Ridge()).fit(TABLE[:90], Y[:90])
    residuals = Y[:90].to_numpy() - values.numpy()[:, 0]
    of_model = function.predict(QUERIES) + 0.2 * fitted.neighbor_weights(QUERIES) @ residuals
    networks = with_share_of(fitted, 0.0).predict(QUERIES)
    expected = (1 - share) * networks + share * of_model
    np.testing.assert_allclose(fitted.predict(QUERIES), expected, rtol=1e-6)
    np.testing.assert_allclose(with_share_of(fitted, 1.0).predict(QUERIES), of_model, rtol=1e-6)


def test_a_model_that_knows_nothing_leaves_the_networks_with_residuals():
    """Its function is the mean, its value at a row the mean of the other folds."""
    model = with_share_of(fit(nona(DummyRegressor())), 1.0)
    values = model.bank_.neighbors.offset.values.numpy()[:, 0]
    weighted = model.neighbor_weights(QUERIES) @ (Y[:90].to_numpy() - values)
    np.testing.assert_allclose(model.predict(QUERIES), Y[:90].mean() + 0.2 * weighted, rtol=1e-6)


def test_an_exact_model_has_nearly_all_of_the_prediction():
    """Where validation rows are many."""
    X = RNG.normal(size=(1500, 3))
    y = X @ [1.0, 2.0, -3.0]
    model = fit(
        nona(LinearRegression(), n_estimators=1, validation_fraction=0.5, max_iter=2), X, y
    )
    assert model.bank_.neighbors.offset.share > 0.85


def test_a_model_of_noise_has_a_small_share():
    X = RNG.normal(size=(1200, 2))
    noise = KNeighborsRegressor(1).fit(X, RNG.normal(size=1200))

    class Noise(RegressorMixin, BaseEstimator):
        def fit(self, X, y):
            return self

        def predict(self, X):
            return 9 * noise.predict(X)

    params = {"n_estimators": 1, "validation_fraction": 0.5, "max_iter": 20}
    model = fit(nona(Noise(), **params), X, np.sin(2 * X[:, 0]))
    assert model.bank_.neighbors.offset.share < 0.35


@pytest.mark.parametrize("n_rows", [60, 400])
@pytest.mark.parametrize("size", [10.0, 1e20])
def test_a_model_that_is_far_off_has_nearly_no_share(n_rows, size):
    X = RNG.normal(size=(n_rows, 2))

    class Far(RegressorMixin, BaseEstimator):
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.where(X[:, 1] > 0, size, -size)

    model = fit(nona(Far(), n_estimators=1, max_iter=30), X, X[:, 0] + np.sin(2 * X[:, 1]))
    assert model.bank_.neighbors.offset.share * min(size, 1e3) <= 0.5


def test_left_out_rows_have_values_of_other_folds(fitted):
    offset = fitted.bank_.neighbors.offset
    weights = fitted.neighbor_weights(None)
    residuals = Y[:90].to_numpy() - offset.values.numpy()[:, 0]
    networks = with_share_of(fitted, 0.0).predict(None)
    of_model = offset.values.numpy()[:, 0] + 0.2 * weights @ residuals
    expected = (1 - offset.share) * networks + offset.share * of_model
    np.testing.assert_allclose(fitted.predict(None), expected, rtol=1e-6)


def test_contributions_sum_to_predictions(fitted):
    table = fitted.explain(QUERIES)
    sums = table.groupby("query", sort=False)["contribution"].sum()
    np.testing.assert_allclose(sums, fitted.predict(QUERIES), rtol=1e-6)


def test_columns_have_the_amounts_of_an_additive_model(fitted):
    """Of one whose share is 1, they are its differences."""
    model = with_share_of(fitted, 1.0)
    for head in model.network_.head.heads:
        head.credibility = (1.0,)
    table = model.attribute(QUERIES[:4], TABLE[:90], n_neighbors=3)
    function = model.bank_.trend.functions[-1]
    for _, line in table.iterrows():
        row, query = TABLE.loc[[line["neighbor"]]], QUERIES.loc[[line["query"]]]
        for name in TABLE:
            changed = row.copy()
            changed[name] = query[name].to_numpy()
            changed["kind"] = pd.Categorical(changed["kind"], TABLE["kind"].cat.categories)
            expected = function.predict(changed)[0] - function.predict(row)[0]
            assert line[name] == pytest.approx(expected, abs=1e-6)


def test_amounts_of_columns_sum_to_adjustments(fitted):
    for X in (QUERIES[:3], None):
        table = fitted.attribute(X, TABLE[:90], n_neighbors=3)
        moved = table["adjusted_target"] - table["target"]
        np.testing.assert_allclose(table[[*TABLE, "other"]].sum(axis=1), moved, atol=1e-9)


def test_quantiles_surround_predictions(fitted):
    low, high = fitted.predict_quantiles(QUERIES, (0.05, 0.95)).T
    assert ((low < fitted.predict(QUERIES)) & (fitted.predict(QUERIES) < high)).all()
    again = copy.deepcopy(fitted).calibrate(QUERIES, Y[90:])
    assert again.predict_quantiles(QUERIES).shape == (30, 3)
    assert copy.deepcopy(fitted).calibrate().calibration_ is not None


def test_importances_are_of_the_columns_that_the_model_uses(fitted):
    size, age, kind = fitted.feature_importances_
    assert size > 2 * age > 0.02
    assert kind > 0.005


def test_unknown_levels_widen_distributions(fitted):
    assert fitted.bank_.unknown_levels.shares[0][0] > 0


def test_what_looks_at_a_fitted_model_takes_it(fitted, tmp_path):
    assert "<article" in NeighborsReport(fitted, QUERIES[:1], features=TABLE[:90])._repr_html_()
    explore(fitted, QUERIES[:5], features=TABLE[:90]).save(tmp_path / "page")
    least = QUERIES[fitted.predict(QUERIES) == fitted.predict(QUERIES).min()]
    found = counterfactuals(fitted, least, TABLE[:90], at_least=Y.mean())
    assert (found["prediction"] >= Y.mean()).any()
    assert len(fitted.influence(QUERIES)) == 90


def test_an_added_row_has_the_value_of_the_model(fitted):
    model = copy.deepcopy(fitted)
    model.add_neighbors(QUERIES, Y[90:])
    expected = fitted.bank_.trend(as_rows(QUERIES)).numpy()
    np.testing.assert_allclose(model.bank_.neighbors.offset.values[90:].numpy(), expected)
    model.remove_neighbors(ids=np.arange(90, 120))
    np.testing.assert_allclose(model.predict(QUERIES), fitted.predict(QUERIES), rtol=1e-9)


def test_a_removed_row_leaves_all_but_the_model(fitted):
    model = copy.deepcopy(fitted)
    model.remove_neighbors(ids=[3, 50])
    assert not np.isin([3, 50], model.bank_.trend.ids).any()
    assert len(model.bank_.trend.values) == len(model.bank_.trend.fitted_values) == 88
    kept = np.setdiff1d(np.arange(90), [3, 50])
    before = fitted.bank_.neighbors.offset.values[kept]
    assert torch.equal(model.bank_.neighbors.offset.values, before)
    np.testing.assert_array_equal(
        model.bank_.trend(as_rows(QUERIES)), fitted.bank_.trend(as_rows(QUERIES))
    )


def test_a_compressed_bank_has_the_same_model(fitted):
    model = copy.deepcopy(fitted).compress(30)
    np.testing.assert_array_equal(
        model.bank_.trend(as_rows(QUERIES)), fitted.bank_.trend(as_rows(QUERIES))
    )
    assert len(model.bank_.neighbors.offset.values) == 30
    assert np.isfinite(model.remove_neighbors(ids=model.bank_.ids[:3]).predict(QUERIES)).all()


def test_other_targets_have_no_trend(fitted):
    model = copy.deepcopy(fitted).set_neighbor_targets(np.arange(90.0))
    expected = model.neighbor_weights(QUERIES) @ np.arange(90.0)
    np.testing.assert_allclose(model.predict(QUERIES), expected, rtol=1e-6)


def test_pickles_keep_the_model(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(QUERIES), fitted.predict(QUERIES))


def test_files_of_numbers_refuse_it_before_they_are_written(fitted, tmp_path):
    message = r"trend must be no model for {}, got Pipeline.*: use .*trend='kernel'"
    with pytest.raises(TypeError, match=message.format("a file without code")):
        save(fitted, tmp_path / "model.nona")
    with pytest.raises(TypeError, match=message.format("an ONNX graph")):
        export_onnx(fitted, tmp_path / "model.onnx")
    with pytest.raises(TypeError, match=r"trend must be no model for shards, got Pipeline"):
        save_shards(fitted, tmp_path / "shards", 2)
    assert not [*tmp_path.iterdir()]


def test_an_unfitted_estimator_in_a_file_is_loaded_with_its_model(tmp_path):
    save(nona(SVR()), tmp_path / "model.nona")
    assert isinstance(load(tmp_path / "model.nona", trend=Ridge()).trend, Ridge)


def test_queries_embedded_before_keep_their_rows(fitted):
    queries = fitted.embed(QUERIES)
    np.testing.assert_array_equal(fitted.predict(queries), fitted.predict(QUERIES))
    some = queries[np.array([4, 1])]
    np.testing.assert_allclose(fitted.predict(some), fitted.predict(QUERIES)[[4, 1]], rtol=1e-6)


def test_many_queries_are_predicted_in_blocks(fitted):
    many = pd.concat([QUERIES] * 150, ignore_index=True)
    expected = np.tile(fitted.predict(QUERIES), 150)
    np.testing.assert_allclose(fitted.predict(many), expected, rtol=1e-6)
    np.testing.assert_allclose(fitted.predict(fitted.embed(many)), expected, rtol=1e-6)


def test_columns_in_another_order_are_those_of_fit(fitted):
    expected = fitted.predict(QUERIES)
    np.testing.assert_allclose(fitted.predict(QUERIES[["kind", "age", "size"]]), expected)


def test_rows_without_weight_are_not_fitted():
    weights = np.ones(90)
    weights[:30] = 0
    model = fit(nona(DecisionTreeRegressor(min_samples_leaf=5)), TABLE[["size", "age"]][:90],
                sample_weight=weights)  # fmt: skip
    own = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
    own.fit(TABLE[["size", "age"]][30:90], Y[30:90])
    found = model.bank_.trend(as_rows(QUERIES[["size", "age"]])).numpy()[:, 0]
    np.testing.assert_allclose(found, own.predict(QUERIES[["size", "age"]]))


@pytest.mark.parametrize("kind", ["groups", "times", "weights", "column of times", "validation"])
def test_relations_of_rows_and_several_outputs(kind):
    parts, X, queries = {}, TABLE[:90], QUERIES
    if kind == "groups":
        parts = {"groups": RNG.integers(0, 20, size=90)}
    if kind == "times":
        parts = {"times": np.arange(90.0)}
    if kind == "weights":
        parts = {"sample_weight": RNG.uniform(1, 3, size=90)}
    if kind == "column of times":
        X, queries = X.assign(day=np.arange(90.0)), QUERIES.assign(day=np.linspace(20, 99, 30))
        parts = {"times": "day"}
    if kind == "validation":
        parts = {"X_val": QUERIES, "y_val": np.c_[Y, -Y][90:], "add_validation": True}
    half_life = 50.0 if kind == "times" else None
    model = fit(nona(half_life=half_life), X, np.c_[Y, -Y][:90], **parts)
    assert model.bank_.neighbors.offset.values.shape == (len(model.bank_), 2)
    assert np.isfinite(model.predict(queries)).all()
    model.predict(None)


def test_the_model_of_past_queries_is_of_rows_before_them():
    X = TABLE[:90].assign(day=np.arange(90.0))
    changed = Y[:90].where(X["day"] < 60, 50.0)
    models = [fit(nona(), X, y, times="day").bank_ for y in (Y[:90], changed)]
    at = torch.tensor([40.0, 50.0])
    before, after = (bank.trend.from_earlier(as_rows(X[40:42]), at) for bank in models)
    torch.testing.assert_close(before, after)


def test_a_query_without_earlier_rows_has_no_amounts():
    X = TABLE[:90].assign(day=np.arange(90.0))
    model = fit(nona(), X, times="day")
    early = QUERIES[:1].assign(day=-1.0)
    assert len(model.attribute(early, X)) == 0
    assert len(model.attribute(None, X, n_neighbors=2)) > 90


def test_a_given_random_state_repeats_it():
    model = nona(DecisionTreeRegressor(max_features=1))
    X, queries = TABLE[["size", "age"]], QUERIES[["size", "age"]]
    one, two = (fit(clone(model), X, Y).predict(queries) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_its_parameters_are_searched():
    model = nona(KNeighborsRegressor(), n_estimators=1, max_iter=1)
    X = TABLE[["size", "age"]]
    assert model.get_params()["trend__n_neighbors"] == 5
    search = GridSearchCV(model, {"trend__n_neighbors": [1, 9]}, cv=2)
    best = fit(search, X, Y).best_estimator_
    assert best.bank_.trend.functions[-1].n_neighbors == search.best_params_["trend__n_neighbors"]
    assert model.trend.n_neighbors == 5


def test_a_warm_start_fits_it_anew():
    model = fit(nona(warm_start=True))
    fit(model, y=-Y[:90])
    expected = fit(nona(), y=-Y[:90]).bank_.trend(as_rows(QUERIES))
    torch.testing.assert_close(model.bank_.trend(as_rows(QUERIES)), expected)


def test_progress_is_shown(capfd):
    fit(nona(verbose=1))
    assert "Done" in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"trend": Ridge}, r"trend must be an object, such as Ridge\(\), got the class"),
        ({"trend": LogisticRegression()}, r"trend must be .*, got LogisticRegression\(\)"),
        ({"trend": "kernle"}, "'trend' parameter .* Got 'kernle'"),
        ({"trend": 3}, "'trend' parameter .* Got 3"),
        ({"trend": Ridge()}, "trend cannot be fitted .*got Ridge.*could not convert string"),
        (
            {"feature_extractor": nn.Linear(2, 3), "trend": Ridge()},
            r"trend must be None with a feature_extractor, got Ridge\(\)",
        ),
    ],
)
def test_errors_name_the_trend_before_networks_are_trained(params, error, monkeypatch):
    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr("inner.estimators.fitting.train_networks", fail)
    with pytest.raises(ValueError, match=error):
        nona(**params).fit(TABLE[:90], Y[:90])


def test_a_failed_fit_leaves_the_estimator_as_it_was(fitted):
    model = copy.deepcopy(fitted).set_params(trend=Ridge())
    expected = fitted.predict(QUERIES)
    with pytest.raises(ValueError, match="trend cannot be fitted"):
        model.fit(TABLE[:90], Y[:90])
    np.testing.assert_array_equal(model.predict(QUERIES), expected)


def test_a_model_that_refuses_an_unknown_level_is_named():
    model = fit(nona(make_pipeline(make_column_transformer((OneHotEncoder(), ["kind"])), Ridge())))
    strange = QUERIES[:1].assign(kind=pd.Categorical(["castle"]))
    with pytest.raises(ValueError, match="trend cannot predict these rows, got Pipeline"):
        model.predict(strange)
