"""Estimators whose neighbours satisfy a rule: in training, in leave-one-out and for queries."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from inner.training import DatasetPool
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import FixedThresholdClassifier, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from nona_sklearn import (
    FeatureExtractor,
    NeighborsDisplay,
    NeighborsReport,
    NONAClassifier,
    NONARegressor,
    ShardedNeighbors,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    export_onnx,
    load,
    save,
    save_shards,
    unwrap,
)
from nona_sklearn.eligibility import any_row, differs, distance, pairs, same, within
from nona_sklearn.explanation import compare_columns

pytestmark = pytest.mark.filterwarnings("ignore:too few rows are eligible:UserWarning")
N = 90
rng = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "area": rng.uniform(40, 120, N).round(1),
        "district": rng.choice(["north", "south", "west"], N),
        "age": rng.integers(0, 40, N).astype(float),
    },
    index=[f"flat {i}" for i in range(N)],
)
y = 5 * X["area"] + 40 * (X["district"] == "west") + rng.normal(0, 5, N)
LABELS = np.where(y > y.median(), "dear", "cheap")
NEW = pd.DataFrame(
    {"area": [50.0, 80.0, 100.0], "district": ["north", "west", "east"], "age": [10.0, 12.0, 5.0]},
    index=["p", "q", "r"],
)
RULE = same("district") & within("age", 10)
PLAIN = {"weighting": "uniform", "learn_feature_weights": False, "trend": None}
#: The last query is of a district that no row has.
OF_DISTRICT = (NEW[["district"]].to_numpy() == X["district"].to_numpy()[None]) & (
    abs(NEW[["age"]].to_numpy() - X["age"].to_numpy()[None]) <= 10
)
ITSELF = np.eye(N, dtype=bool)
OF_ROWS = (X[["district"]].to_numpy() == X["district"].to_numpy()[None]) & (
    abs(X[["age"]].to_numpy() - X["age"].to_numpy()[None]) <= 10
)


ALL_WEIGH = NONARegressor(
    similarity="l2", n_neighbors=None, trend=None, max_iter=3, random_state=0
)


@pytest.mark.parametrize("estimator", [SoftStepKNeighborsRegressor(3, **PLAIN), ALL_WEIGH])
def test_a_prediction_is_that_of_a_bank_of_the_eligible_rows(estimator):
    estimator = clone(estimator).fit(X, y, eligibility=RULE)
    of_district = NEW[["district"]].to_numpy() == X["district"].to_numpy()[None]
    for eligibility, admitted in ((None, OF_DISTRICT), (same("district"), of_district)):
        expected = [np.nan] * len(NEW)
        for i in range(2):
            alone = copy.deepcopy(estimator).remove_neighbors(ids=np.flatnonzero(~admitted[i]))
            every = np.ones((1, len(alone.bank_)), dtype=bool)
            expected[i] = alone.predict(NEW[i : i + 1], eligibility=every)[0]
        assert_allclose(estimator.predict(NEW, eligibility=eligibility), expected)
        assert_allclose(estimator.predict(NEW, eligibility=admitted), expected)


ESTIMATORS = {
    "features": NONARegressor(max_iter=3, random_state=0),
    "l2": NONARegressor(similarity="l2", max_iter=3, random_state=0),
    "all weigh": clone(ALL_WEIGH),
    "tree": NONARegressor(
        similarity="l2", embedding_dim=2, algorithm="kd_tree", max_iter=3, random_state=0
    ),
    "classes": NONAClassifier(max_iter=3, random_state=0),
    "softstep": SoftStepKNeighborsRegressor(max_iter=3, random_state=0),
    "softstep classes": SoftStepKNeighborsClassifier(max_iter=3, random_state=0),
}


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    estimator = ESTIMATORS[request.param]
    targets = LABELS if "classes" in request.param else y
    return estimator.fit(X, targets, eligibility=RULE)


def test_only_eligible_rows_have_weight(fitted):
    for queries, admitted in ((NEW, OF_DISTRICT), (None, OF_ROWS & ~ITSELF)):
        weights = fitted.neighbor_weights(queries).toarray()
        has_row = admitted.any(axis=1)
        assert (weights[~admitted] == 0).all()
        assert_allclose(weights.sum(axis=1), has_row)
        distances, ids = fitted.kneighbors(queries, 4)
        assert_array_equal((ids >= 0).sum(axis=1), admitted.sum(axis=1).clip(max=4))
        assert_array_equal(np.isinf(distances), ids < 0)
        _, ids = fitted.heaviest_neighbors(queries, 4)
        listed, places = (ids >= 0).nonzero()
        assert admitted[listed, ids[listed, places]].all()
        table = fitted.explain(queries)
        names = NEW.index if queries is not None else X.index
        rows = table[table["neighbor"].isin(X.index)]
        pairs_of = names.get_indexer(rows["query"]), X.index.get_indexer(rows["neighbor"])
        assert admitted[pairs_of].all()


def test_queries_without_rows_are_not_predicted(fitted):
    isolated = ~(OF_ROWS & ~ITSELF).any(axis=1)
    if hasattr(fitted, "predict_proba"):
        assert_allclose(fitted.predict_proba(NEW)[2], [0.5, 0.5], atol=0.2)
        targets = LABELS
    else:
        assert_array_equal(np.isnan(fitted.predict(NEW)), [False, False, True])
        assert_array_equal(np.isnan(fitted.predict(None)), isolated)
        assert_array_equal(np.isnan(fitted.predict_quantiles(NEW)).any(axis=1), [0, 0, 1])
        targets = y.to_numpy()
    predicted = fitted.predict(None)[~isolated]
    if hasattr(fitted, "predict_proba"):
        expected = np.mean(predicted == targets[~isolated])
    else:
        truth = targets[~isolated]
        expected = 1 - ((truth - predicted) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
    assert fitted.score(None, targets) == pytest.approx(expected)


def test_a_mask_says_what_a_rule_says(fitted):
    if not hasattr(fitted, "predict_proba"):
        by_list = fitted.predict(NEW, eligibility=OF_DISTRICT.tolist())
        assert_allclose(by_list, fitted.predict(NEW))
    assert_allclose(
        fitted.neighbor_weights(NEW, eligibility=OF_DISTRICT).toarray(),
        fitted.neighbor_weights(NEW).toarray(),
    )
    for method in (fitted.kneighbors, fitted.heaviest_neighbors):
        by_mask, by_rule = method(NEW, 3, eligibility=OF_DISTRICT), method(NEW, 3)
        for array, expected in zip(by_mask, by_rule, strict=True):
            assert_allclose(array, expected)


def test_files_and_pickles_keep_the_rule(fitted, tmp_path):
    save(fitted, tmp_path / "estimator.safetensors")
    weights = fitted.neighbor_weights(NEW).toarray()
    for copied in (load(tmp_path / "estimator.safetensors"), pickle.loads(pickle.dumps(fitted))):
        assert_array_equal(copied.neighbor_weights(NEW).toarray(), weights)
        assert copied.bank_.rule.rule == RULE


def test_a_function_is_no_part_of_a_file(tmp_path):
    knn = SoftStepKNeighborsRegressor(3, **PLAIN)
    knn.fit(X, y, eligibility=pairs(lambda q, r: r["age"] <= q["age"][:, None], ["age"]))
    assert (knn.bank_.neighbors.compared[:, 0].numpy() == X["age"]).all()
    with pytest.raises((TypeError, ValueError), match="function"):
        save(knn, tmp_path / "estimator.safetensors")


def test_edits():
    """Added rows have new districts; the name of a district leaves with its last row."""
    knn = SoftStepKNeighborsRegressor(2, **PLAIN).fit(X, y, eligibility=same("district"))
    knn.add_neighbors(NEW.iloc[[2]].set_axis(["s"]), [100.0])
    assert knn.predict(NEW)[2] == pytest.approx(100.0)
    assert b"east" in pickle.dumps(knn.bank_.rule)
    knn.remove_neighbors(names="s")
    assert np.isnan(knn.predict(NEW)).tolist() == [False, False, True]
    assert b"east" not in pickle.dumps(knn.bank_)
    assert b"west" in pickle.dumps(knn.bank_)


def test_a_required_number_of_rows():
    counts = OF_DISTRICT.sum(axis=1)
    k = int(counts[:2].max())
    assert counts[:2].min() < k
    rule = RULE.at_least(k, relax=[same("district")])
    estimator = clone(ALL_WEIGH).fit(X, y, eligibility=rule)
    of_district = NEW[["district"]].to_numpy() == X["district"].to_numpy()[None]
    expected = np.where((counts >= k)[:, None], OF_DISTRICT, of_district)
    assert_array_equal(estimator.neighbor_weights(NEW).toarray() > 0, expected)
    # A row does not count for itself.
    west = (X["district"] == "west").to_numpy()
    alone = same("district").at_least(int(west.sum()))
    assert np.isnan(estimator.predict(None, eligibility=alone)[west]).all()
    assert not np.isnan(estimator.predict(NEW, eligibility=alone)[1])


@pytest.mark.parametrize("rule", [RULE, RULE.at_least(6)], ids=repr)
def test_training_leaves_out_what_a_rule_excludes(rule, monkeypatch):
    """Training admits the pairs of the rule, without a row and itself.

    A pool has a part of the rows, so that a required number of them does not count.
    """
    admitted = []
    exclude = DatasetPool.excluded_in_training

    def kept(pool, queries, rows):
        exclusion = exclude(pool, queries, rows)
        ages = pool.compared[:, 1]
        near = (ages[queries][:, None] - ages[rows][None]).abs() <= 10
        same_row = queries[:, None] == torch.arange(len(pool.X))[rows][None]
        codes = pool.compared[:, 0]
        expected = near & (codes[queries][:, None] == codes[rows][None]) & ~same_row
        assert torch.equal(~exclusion.of(), expected)
        admitted.append(expected.double().mean().item())
        return exclusion

    monkeypatch.setattr(DatasetPool, "excluded_in_training", kept)
    NONARegressor(similarity="l2", trend=None, max_iter=1, random_state=0).fit(
        X, y, eligibility=rule
    )
    assert 0 < np.mean(admitted) < 0.5


def test_validation_rows_have_eligible_neighbors(monkeypatch):
    """Validation rows that `fit` is given are predicted and calibrated from eligible rows."""
    masks = []
    exclude = DatasetPool.excluded_in_validation

    def kept(pool, valid, rows):
        exclusion = exclude(pool, valid, rows)
        masks.append(~exclusion.of()[:, : len(pool.X)])
        return exclusion

    monkeypatch.setattr(DatasetPool, "excluded_in_validation", kept)
    truth = [300.0, 450.0, 500.0]
    reg = NONARegressor(
        similarity="l2", trend=None, n_neighbors=5, n_estimators=1, max_iter=2, random_state=0
    )
    reg.fit(X, y, eligibility=RULE, X_val=NEW, y_val=truth)
    assert masks
    assert_array_equal(masks[0].numpy(), OF_DISTRICT)
    calibration = reg.calibration_
    assert reg.calibrate(NEW, truth).calibration_ == calibration


def test_levels_keep_their_rows():
    """The levels of the remaining rows are numbered anew."""
    estimator = clone(ALL_WEIGH).fit(X, y, eligibility=same("district"))
    north = (X["district"] == X["district"].iloc[0]).to_numpy()
    estimator.remove_neighbors(ids=np.flatnonzero(north))
    expected = NEW[["district"]].to_numpy() == X.loc[~north, "district"].to_numpy()[None]
    assert_array_equal(estimator.neighbor_weights(NEW).toarray() > 0, expected)


def test_ordered_categories_differ_by_levels():
    """Levels without a row count; a level that the order lacks is missing."""
    order = ["poor", "fair", "good", "best"]
    grades = np.array(["poor", "good", "best"])[np.arange(N) % 3]
    table = X.assign(grade=pd.Categorical(grades, order, ordered=True))
    queries = NEW.assign(
        grade=pd.Categorical(["fair", "best", "new"], [*order, "new"], ordered=True)
    )
    estimator = clone(ALL_WEIGH).fit(table, y, eligibility=within("grade", 1))
    admitted = [["poor", "good"], ["good", "best"], []]
    expected = [np.isin(grades, near) for near in admitted]
    assert_array_equal(estimator.neighbor_weights(queries).toarray() > 0, expected)
    estimator.remove_neighbors(ids=np.flatnonzero(grades == "poor"))
    assert_array_equal(
        estimator.neighbor_weights(queries).toarray() > 0,
        np.array(expected)[:, grades != "poor"],
    )
    with pytest.raises(ValueError, match="ordered category, got one of kind 'category'"):
        clone(ALL_WEIGH).fit(X, y, eligibility=within("district", 1))


def test_embedded_queries_keep_their_levels():
    """Rows that come and go after queries were embedded number the levels anew."""
    estimator = clone(ALL_WEIGH).fit(X, y, eligibility=same("district"))
    embedded = estimator.embed(NEW)
    estimator.add_neighbors(NEW.iloc[[2]].set_axis(["s"]), [100.0])
    estimator.remove_neighbors(ids=np.flatnonzero(X["district"] == X["district"].iloc[0]))
    weights = estimator.neighbor_weights(embedded).toarray()
    assert_array_equal(weights, estimator.neighbor_weights(NEW).toarray())
    assert weights[2, -1] == 1


GAPS = X.assign(
    age=X["age"].where(np.arange(N) % 7 > 0), district=X["district"].where(np.arange(N) % 5 > 0)
)
PLACES = GAPS.assign(lat=rng.uniform(-1, 1, N), long=rng.uniform(-1, 1, N))
REACHING = [
    same("district"),
    within("age", 3) & same("district"),
    within("age", 9) & within("age", 3),
    within("age", 9, before=True) | within("age", 1),
    same("district") | within("age", 1),
    ~within("age", 9),
    differs("district") & within("age", 9),
    distance("lat", "long") < 30_000,
    (distance("lat", "long") <= 60_000) & same("district"),
    distance("lat", "long") > 60_000,
    within("age", 1).at_least(4, relax=[within("age", 3), same("district")]),
    within("age", 1).at_least(4, relax=[within("age", 3)]),
]


@pytest.fixture(scope="module")
def with_gaps():
    """Estimators whose blocks of queries are small."""
    rule = same("district") | within("age", 1) | (distance("lat", "long") < 1)
    return {
        name: SoftStepKNeighborsRegressor(5, similarity=name, max_iter=1, **PLAIN).fit(
            PLACES, y, eligibility=rule
        )
        for name in ("l2", "dot")
    }


@pytest.mark.parametrize("searched", ["all rows", "a few more at a time"])
@pytest.mark.parametrize("rule", REACHING, ids=repr)
def test_rows_beyond_reach_are_not_compared(rule, searched, with_gaps, monkeypatch):
    """A search under a rule finds what it finds under the mask of all pairs, gaps included."""
    monkeypatch.setattr("inner.inference.evaluation.SEARCHED_QUERIES", 8)
    if searched != "all rows":
        monkeypatch.setattr("inner.inference.neighbors.FEW_ROWS", 0)
        monkeypatch.setattr("inner.inference.index.SEARCHED", 1)
        monkeypatch.setattr("inner.inference.index.FEW_MORE", 1)
    for estimator in with_gaps.values():
        stored = estimator.bank_.rule.replaced_by(rule)
        numbers = estimator.bank_.neighbors.compared
        for queries, excluded in ((PLACES, None), (None, torch.eye(N, dtype=torch.bool))):
            mask = stored(numbers, numbers, excluded).numpy()
            assert 0 < mask.sum() < mask.size
            found, expected = (
                estimator.kneighbors(queries, 9, eligibility=each) for each in (rule, mask)
            )
            for array, wanted in zip(found, expected, strict=True):
                assert_array_equal(array, wanted)
            assert_array_equal(
                estimator.predict(queries, eligibility=rule),
                estimator.predict(queries, eligibility=mask),
            )


def test_a_search_reaches_rows_at_the_limit(monkeypatch):
    """Times in seconds differ by rounding, which is large beside a short width."""
    monkeypatch.setattr("inner.inference.evaluation.SEARCHED_QUERIES", 1)
    start = 1.7e9 + 0.1 * np.arange(200)
    knn = SoftStepKNeighborsRegressor(3, max_iter=1, **PLAIN)
    knn.fit(start[:, None], start % 7, eligibility=within(0, 0.3))
    distances, _ = knn.kneighbors(start[3:-3, None], 7)
    assert np.isfinite(distances).all()
    found = knn.neighborhood(start[3:-3, None])["n_eligible"]
    assert (found == 7).all()


def test_a_row_counts_for_itself_in_no_wider_rule():
    def none(queries, rows):
        return np.zeros((len(queries["age"]), len(rows["age"])), dtype=bool)

    rule = pairs(none, ["age"]).at_least(2, relax=[within("age", 0)])
    estimator = clone(ALL_WEIGH).fit(X, y, eligibility=within("age", 5))
    same_age = (X[["age"]].to_numpy() == X["age"].to_numpy()[None]) & ~ITSELF
    enough = same_age.sum(axis=1) >= 2
    assert 0 < enough.sum() < N
    expected = same_age & enough[:, None]
    weights = estimator.neighbor_weights(None, eligibility=rule).toarray()
    assert_array_equal(weights > 0, expected)


def test_rows_of_the_bank_as_queries_take_a_rule():
    estimator = clone(ALL_WEIGH).fit(X, y, eligibility=RULE)
    district = (X[["district"]].to_numpy() == X["district"].to_numpy()[None]) & ~ITSELF
    for eligibility in (same("district"), district[[7]].tolist()):
        query = unwrap(estimator).stored_row("flat 7")
        weights = estimator.neighbor_weights(query, eligibility=eligibility).toarray()
        assert_array_equal(weights > 0, district[[7]])


def test_search_and_pipelines():
    scores = cross_val_score(
        SoftStepKNeighborsRegressor(3, **PLAIN), X, y, cv=3, params={"eligibility": RULE}
    )
    assert np.isfinite(scores).all()
    pipeline = make_pipeline(FunctionTransformer(), SoftStepKNeighborsRegressor(3, **PLAIN))
    pipeline.fit(X, y, softstepkneighborsregressor__eligibility=RULE)
    assert np.isnan(pipeline.predict(NEW)).tolist() == [False, False, True]
    assert not np.isnan(pipeline.predict(NEW, eligibility=differs("district"))).any()


WRONG = {
    "no rule": ({"eligibility": "district"}, TypeError, "rule of nona_sklearn.eligibility.*dist"),
    "no column": ({"eligibility": same("street")}, ValueError, "columns of X, such as.*'street'"),
    "no rows": (
        {"eligibility": within("age", 0) & differs("age")},
        ValueError,
        "must admit a row for some rows of X",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_refused_before_training(name, monkeypatch):
    arguments, kind, message = WRONG[name]
    monkeypatch.setattr("inner.estimators.fitting.train_networks", None)
    with pytest.raises(kind, match=message):
        NONARegressor().fit(X, y, **arguments)


def test_rows_of_an_extractor_have_masks_only():
    rows, values = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=40)
    reg = NONARegressor(FeatureExtractor(torch.nn.Linear(3, 4)), n_estimators=1, max_iter=1)
    with pytest.raises(ValueError, match="eligibility must be None with a feature_extractor"):
        reg.fit(rows, values, eligibility=same(0))
    admitted = rng.uniform(size=(5, 40)) < 0.3
    weights = reg.fit(rows, values).neighbor_weights(rows[:5], eligibility=admitted).toarray()
    assert (weights[~admitted] == 0).all()
    assert_allclose(weights.sum(axis=1), 1)


def test_errors_of_queries():
    knn = SoftStepKNeighborsRegressor(3, **PLAIN).fit(X, y, eligibility=RULE)
    with pytest.raises(ValueError, match=r"that fit has stored, \['district', 'age'\], got \['ar"):
        knn.predict(NEW, eligibility=within("area", 5))
    with pytest.raises(ValueError, match=r"a mask of shape \(3, 90\).*got shape \(3, 4\)"):
        knn.predict(NEW, eligibility=np.ones((3, 4), dtype=bool))
    with pytest.raises(TypeError, match="or a mask of bool, got array"):
        knn.predict(NEW, eligibility=np.ones((3, N)))
    with pytest.raises(TypeError, match="compare it with metres"):
        knn.predict(NEW, eligibility=distance("area", "age"))
    with pytest.raises(ValueError, match="column 'age' held numbers in fit, and holds strings"):
        knn.predict(NEW.assign(age=["a", "b", "c"]))
    with pytest.raises(ValueError, match="X must be a table where fit was given a rule"):
        knn.add_neighbors(knn.embed(NEW), [1.0, 2.0, 3.0])
    plain = SoftStepKNeighborsRegressor(3, **PLAIN).fit(X, y)
    with pytest.raises(ValueError, match="compares columns that fit has not stored"):
        plain.predict(NEW, eligibility=RULE)


def test_shards_forget_the_name_of_a_district_with_its_last_row(tmp_path):
    knn = SoftStepKNeighborsRegressor(2, **PLAIN).fit(X, y, eligibility=same("district"))
    save_shards(knn, tmp_path / "shards", 3)
    sharded = ShardedNeighbors(tmp_path / "shards")
    for removed, is_known in ((None, True), ("s", False)):
        if removed is None:
            sharded.add_neighbors(NEW.iloc[[2]].set_axis(["s"]), [100.0])
        else:
            sharded.remove_neighbors(names=removed)
        assert_allclose(sharded.predict(NEW)[2], 100.0 if is_known else np.nan)
        files = [path.read_bytes() for path in (tmp_path / "shards").rglob("*.safetensors")]
        assert any(b"east" in content for content in files) == is_known


def test_graphs_refuse_a_rule(tmp_path):
    knn = SoftStepKNeighborsRegressor(3, **PLAIN).fit(X, y, eligibility=RULE)
    with pytest.raises(ValueError, match="eligibility must be None in fit for an ONNX graph"):
        export_onnx(knn, tmp_path / "graph.onnx")


def test_methods_of_one_query_name_its_lack_of_rows():
    knn = SoftStepKNeighborsRegressor(3, **PLAIN).fit(X, y, eligibility=RULE)
    with pytest.raises(ValueError, match=r"has no neighbors: no row of the bank is.* eligible"):
        NeighborsDisplay.from_estimator(knn, NEW.iloc[[2]])
    with pytest.raises(ValueError, match="score needs queries that an earlier, or eligible"):
        knn.score(NEW.iloc[[2]], [100.0])
    assert len(knn.explain(NEW.iloc[[2]])) == 0


def test_an_unwrapped_model_takes_rules():
    """In the units of the model, as its estimator does; a threshold has no rule."""
    model = TransformedTargetRegressor(clone(ALL_WEIGH), func=np.log, inverse_func=np.exp)
    model.fit(X, y, eligibility=RULE)
    unwrapped, inner = unwrap(model), unwrap(model).estimator
    districts = same("district")
    for name in ("predict", "predict_quantiles"):
        expected = np.exp(getattr(inner, name)(NEW, eligibility=districts))
        assert_allclose(getattr(unwrapped, name)(NEW, eligibility=districts), expected)
    assert_allclose(
        unwrapped.predict_cdf(NEW, 300.0, eligibility=districts),
        inner.predict_cdf(NEW, np.log(300.0), eligibility=districts),
    )
    drawn = unwrapped.sample_y(NEW, 4, eligibility=districts)
    assert_allclose(drawn, np.exp(inner.sample_y(NEW, 4, eligibility=districts)))
    of_query = unwrapped.explain(NEW, eligibility=districts).groupby("query")["contribution"]
    predicted = unwrapped.predict(NEW[:2], eligibility=districts)
    assert_allclose(of_query.sum().loc[["p", "q"]], predicted)
    std = unwrapped.predict(NEW[:2], return_std=True, eligibility=districts)[1]
    assert not np.allclose(std, unwrapped.predict(NEW[:2], return_std=True)[1])
    classifier = NONAClassifier(n_estimators=1, max_iter=1, random_state=0)
    threshold = FixedThresholdClassifier(classifier, threshold=0.3, pos_label="dear")
    unwrapped = unwrap(threshold.fit(X, LABELS))
    assert unwrapped.predict(NEW).shape == (3,)
    with pytest.raises(ValueError, match="eligibility must be None with the threshold"):
        unwrapped.predict(NEW, eligibility=districts)


# -- columns that are no features --------------------------------------------------------------

SHORT = {"max_iter": 2, "random_state": 0}
PLAIN_KNN = SoftStepKNeighborsRegressor(3, max_iter=1, **PLAIN)


def test_ignored_columns_change_nothing_but_what_rules_compare(tmp_path):
    """A column that is no feature may hold anything."""
    table = X.assign(hospital=rng.permutation(N).astype(str), lists=[[1, 2]] * N)
    new = NEW.assign(hospital="new", lists=None)
    encoder = TableEncoder(ignored_features=["hospital", "lists"])
    plain = NONARegressor(**SHORT).fit(X, y)
    reg = NONARegressor(table_encoder=encoder, **SHORT).fit(table, y)
    assert_array_equal(reg.predict(new), plain.predict(NEW))
    assert_array_equal(reg.feature_importances_, [*plain.feature_importances_, 0, 0])
    names = plain.features_.get_feature_names_out()
    assert_array_equal(reg.features_.get_feature_names_out(), names)
    save(reg, tmp_path / "model")
    assert_array_equal(load(tmp_path / "model").predict(new), plain.predict(NEW))

    table["hospital"], new["hospital"] = X["district"], NEW["district"]
    reg.fit(table, y, eligibility=same("hospital"))
    _, rows = reg.kneighbors(new, 5)
    assert X["district"].iloc[rows[0]].eq("north").all()
    assert X["district"].iloc[rows[1]].eq("west").all()


def test_a_model_as_trend_does_not_see_ignored_columns():
    table = X[["area", "age"]].assign(leak=y)
    moved = table[:5].assign(leak=0.0)
    for ignored in (None, "leak"):
        encoder = TableEncoder(ignored_features=ignored)
        reg = NONARegressor(trend=LinearRegression(), table_encoder=encoder, **SHORT)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            reg.fit(table, y)
        assert any("equals y" in str(w.message) for w in caught) == (ignored is None)
        is_ignored = (reg.predict(moved) == reg.predict(table[:5])).all()
        assert is_ignored == (ignored is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignored_features": "x"}, "ignored_features must be columns of X, got 'x'"),
        ({"ignored_features": [0, 1, 2]}, "must leave a feature, got all columns"),
        ({"ignored_features": [True, False, True]}, "must name columns, got a mask"),
        (
            {"ignored_features": "district", "categorical_features": ["district"]},
            "'district' must be in categorical_features or in ignored_features, not in both",
        ),
        (
            {"ignored_features": "district", "text_features": "district"},
            "'district' must be in text_features or in ignored_features, not in both",
        ),
        (
            {"ignored_features": "age", "places": ("age", "area")},
            "'age' must be in places or in ignored_features, not in both",
        ),
    ],
)
def test_wrong_ignored_columns_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(**options).fit(X)


def test_sparse_tables_and_graphs_have_no_ignored_columns(tmp_path):
    reg = NONARegressor(table_encoder=TableEncoder(ignored_features=[1]), **SHORT)
    with pytest.raises(ValueError, match="ignored_features must be None where X is sparse"):
        reg.fit(csr_array(X[["area", "age"]].to_numpy()), y)
    with pytest.raises(ValueError, match="ignored_features must be None for an ONNX graph"):
        export_onnx(reg.fit(X, y), tmp_path / "graph.onnx")


# -- what a rule leaves ------------------------------------------------------------------------


def test_any_row_stores_columns_for_the_rules_of_calls():
    free = clone(PLAIN_KNN).fit(X, y)
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=any_row("district", "age"))
    assert_array_equal(knn.predict(NEW), free.predict(NEW))
    by_mask = knn.predict(NEW[:2], eligibility=OF_DISTRICT[:2])
    assert_array_equal(knn.predict(NEW[:2], eligibility=RULE), by_mask)
    assert np.isnan(knn.predict(NEW, eligibility=~any_row("age"))).all()
    with pytest.raises(ValueError, match="any_row needs at least one column"):
        any_row()


def test_too_few_rows_are_a_warning_or_an_error():
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=RULE)
    for predict in (knn.predict, knn.predict_quantiles):
        with pytest.warns(UserWarning, match=r"for 1 of 3 queries, such as query 'r', by .* NaN"):
            predict(NEW)
    with pytest.warns(UserWarning, match="for 1 of 3 queries, such as query 'r', by the mask"):
        knn.predict(NEW, eligibility=OF_DISTRICT)
    with pytest.raises(ValueError, match=r"for 1 of 3 .* by same\('district'\).at_least\(1, "):
        knn.predict(NEW, eligibility=same("district").at_least(1, on_fewer="raise"))
    assert np.isfinite(knn.predict(NEW[:2], eligibility=same("district"))).all()
    with pytest.raises(ValueError, match=r"on_fewer must be one of \['raise', 'warn'\], got 'x'"):
        RULE.at_least(1, on_fewer="x")


def test_the_neighborhood_counts_eligible_rows_and_names_the_rule():
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=RULE)
    found = knn.neighborhood(NEW)
    n_eligible = OF_DISTRICT.sum(axis=1)
    assert found["n_eligible"].tolist() == n_eligible.tolist()
    assert found["rule"].tolist()[:2] == [repr(RULE)] * 2
    assert pd.isna(found["rule"][2])

    of_few = RULE.at_least(N, relax=[same("district"), within("age", 1)])
    assert pd.isna(knn.neighborhood(NEW, eligibility=of_few)["rule"]).all()
    wider = RULE.at_least(int(n_eligible.max()) + 1, relax=[same("district")])
    assert (
        knn.neighborhood(NEW[:2], eligibility=wider)["rule"].tolist() == ["same('district')"] * 2
    )

    by_mask = knn.neighborhood(NEW, eligibility=OF_DISTRICT)
    assert by_mask["n_eligible"].tolist() == n_eligible.tolist()
    assert "rule" not in by_mask
    without_itself = (OF_ROWS & ~ITSELF).sum(axis=1)
    assert knn.neighborhood()["n_eligible"].tolist() == without_itself.tolist()


def test_distances_on_the_earth_are_in_metres():
    """A degree of the equator, of a globe of radius 6,371,008.8 m."""
    places = pd.DataFrame({"latitude": [0.0, 0, 60], "longitude": [0.0, 1, 0], "area": 1.0})
    knn = clone(PLAIN_KNN)
    knn.fit(places, [1.0, 2, 3], eligibility=distance("latitude", "longitude") < 2e7)
    found = knn.explain(pd.DataFrame({"latitude": [0.0], "longitude": [0.0], "area": [2.0]}))
    degree = 2 * np.pi * 6_371_008.8 / 360
    metres = np.array([0, degree, 60 * degree])
    assert len(found) > 1
    assert_allclose(found["metres"], metres[found["neighbor"].astype(int)])
    assert "metres" not in clone(PLAIN_KNN).fit(X, y).explain(NEW[:1])


def test_few_rows_widen_distributions():
    """By the formula of `Distribution.added`."""
    knn = SoftStepKNeighborsRegressor(20, max_iter=1, **PLAIN).fit(X, y)
    calibration = knn.calibration_
    error, usual = calibration.error[0], calibration.effective_n_neighbors
    for k in (1, 4):
        mask = np.zeros((1, N), dtype=bool)
        mask[0, :k] = True
        (size,) = knn.neighborhood(NEW[:1], eligibility=mask)["effective_n_neighbors"]
        _, wide = knn.predict(NEW[:1], return_std=True, eligibility=mask)
        knn.calibration_ = replace(calibration, error=())
        _, narrow = knn.predict(NEW[:1], return_std=True, eligibility=mask)
        knn.calibration_ = calibration
        assert wide**2 - narrow**2 == pytest.approx(2 * (1 / size - 1 / usual) * error**2)
        low, high = knn.predict_quantiles(NEW[:1], (0.05, 0.95), eligibility=mask)[0]
        assert high - low > 2 * wide
    all_rows = np.ones((1, N), dtype=bool)
    expected = knn.predict_quantiles(NEW[:1])
    assert_allclose(knn.predict_quantiles(NEW[:1], eligibility=all_rows), expected)


def test_reports_and_attributions_take_a_rule():
    table = X.assign(latitude=42 + X["age"] / 1000, longitude=-93.6)
    query = NEW[:1].assign(latitude=42.01, longitude=-93.6)
    reg = NONARegressor(**SHORT)
    reg.fit(table, y, eligibility=any_row("district", "latitude", "longitude"))
    rule = same("district") & (distance("latitude", "longitude") < 1000)
    (n_eligible,) = reg.neighborhood(query, eligibility=rule)["n_eligible"]
    page = NeighborsReport(reg, query, table, eligibility=rule)._repr_html_()
    assert f"{n_eligible} of {N} rows are eligible by the rule" in page
    assert "distance(&#39;latitude&#39;, &#39;longitude&#39;) &lt; 1000" in page
    assert ">metres<" in page
    shown = reg.explain(query, 6, eligibility=rule)["neighbor"]
    assert all(name in page for name in shown if name != "others")
    mask = X["district"].to_numpy() == "west"
    page = NeighborsReport(reg, row="flat 3", features=table, eligibility=mask)._repr_html_()
    assert f"{mask.sum() - mask[3]} of {N - 1} rows are eligible." in page
    for of in ("adjustments", "distances"):
        found = reg.attribute(query, table, of=of, eligibility=rule)
        assert X["district"].loc[found["neighbor"]].eq("north").all()
    found = reg.attribute(query, of="predictions", eligibility=rule)
    assert_allclose(found["prediction"], reg.predict(query, eligibility=rule))


def test_integers_that_numbers_do_not_hold_are_refused():
    table = X.assign(person=10**18 + np.arange(N))
    with pytest.raises(ValueError, match=r"same\('person'\) compares integers below 2\^53"):
        clone(PLAIN_KNN).fit(table, y, eligibility=same("person"))
    clone(PLAIN_KNN).fit(table, y, eligibility=any_row("person"))


def test_dates_are_moments_in_any_time_zone():
    when = pd.date_range("2024-01-01", periods=N, freq="h", tz="UTC")
    table = X[["area"]].assign(when=when)
    knn = clone(PLAIN_KNN).fit(table, y, eligibility=within("when", hours=2))
    query = table[40:41].assign(area=60.0)
    elsewhere = query.assign(when=query["when"].dt.tz_convert("Asia/Tokyo"))
    (found,) = knn.neighborhood(elsewhere)["n_eligible"]
    assert found == 5
    assert_array_equal(knn.predict(elsewhere), knn.predict(query))


def test_degrees_of_queries_and_of_added_rows_are_checked():
    table = X.assign(latitude=42 + X["age"] / 1000, longitude=-93.6)
    near = distance("latitude", "longitude") < 1000
    knn = clone(PLAIN_KNN).fit(table, y, eligibility=near)
    swapped = table[:2].assign(latitude=-93.6, longitude=42.0)
    for use in (knn.predict, lambda rows: knn.add_neighbors(rows, y[:2])):
        with pytest.raises(ValueError, match=r"degrees from -90 to 90 in column 'latitude', got"):
            use(swapped)
    assert len(knn.bank_) == N


def test_rows_beyond_a_distance_are_found():
    table = X.assign(latitude=42 + X["age"] / 1000, longitude=-93.6)
    knn = clone(PLAIN_KNN).fit(table, y, eligibility=any_row("latitude", "longitude"))
    far = distance("latitude", "longitude") >= 1500
    query = NEW[:1].assign(latitude=42.0, longitude=-93.6)
    mask = (6_371_008.8 * np.deg2rad(table["latitude"].to_numpy() - 42) >= 1500)[None]
    by_rule, by_mask = (knn.kneighbors(query, 9, eligibility=only) for only in (far, mask))
    assert_array_equal(by_rule[1], by_mask[1])


def test_the_second_wider_rule_holds_where_the_first_admits_too_few():
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=any_row("district", "age"))
    rule = (same("district") & within("age", 0)).at_least(
        N // 2, relax=[same("district") & within("age", 1), within("age", 40)]
    )
    assert knn.neighborhood(NEW, eligibility=rule)["rule"].tolist() == ["within('age', 40)"] * 3


def test_applicability_is_by_the_rule_of_the_call():
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=any_row("district", "age"))
    query, rule = NEW[:2], same("district") & within("age", 3)
    found = knn.neighborhood(query, eligibility=rule)
    usual = knn.neighborhood(eligibility=rule)["distance"]
    usual = usual[np.isfinite(usual)]
    expected = [
        (1 + (usual >= (1 - 1e-5) * d).sum()) / (1 + len(usual)) for d in found["distance"]
    ]
    assert_allclose(found["applicability"], expected)


def test_a_function_names_the_columns_that_it_reads():
    rule = pairs(lambda queries, rows: queries["age"][:, None] > rows["age"], columns=["district"])
    with pytest.raises(ValueError, match=r"must name the column 'age' that it reads"):
        clone(PLAIN_KNN).fit(X, y, eligibility=rule)


# -- messages about queries without rows, and columns that are no features -----------------------


def test_explanations_of_queries_without_rows_warn():
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=RULE)
    with pytest.warns(UserWarning, match="for 1 of 3 queries, such as query 'r'.* NaN"):
        found = knn.explain(NEW, 3)
    assert "r" not in set(found["query"])
    with pytest.raises(ValueError, match="for 1 of 3 queries, such as query 'r'"):
        knn.explain(NEW, 3, eligibility=RULE.at_least(1, on_fewer="raise"))


def test_scores_say_how_many_queries_they_leave_out():
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=RULE)
    with pytest.warns(UserWarning, match="score leaves out 1 of 3 queries, for which too few"):
        score = knn.score(NEW, [1.0, 2.0, 3.0])
    assert score == knn.score(NEW[:2], [1.0, 2.0])


def test_warnings_of_classes_say_what_becomes_of_them():
    classifier = SoftStepKNeighborsClassifier(3, max_iter=1, learn_feature_weights=False)
    classifier.fit(X, y > np.median(y), eligibility=RULE)
    with pytest.warns(UserWarning, match="query 'r', by .*: their classes are equally probable"):
        assert_allclose(classifier.predict_proba(NEW)[2], 0.5)


def test_too_few_rows_are_counted_by_the_last_rule():
    knn = clone(PLAIN_KNN).fit(X, y, eligibility=RULE)
    same_district = (NEW[["district"]].to_numpy() == X["district"].to_numpy()).sum(axis=1)
    narrow = (same("district") & within("age", 0)).at_least(N, relax=[same("district")])
    found = knn.neighborhood(NEW, eligibility=narrow)
    assert found["n_eligible"].tolist() == same_district.tolist()
    assert pd.isna(found["rule"]).all()
    assert np.isnan(knn.predict(NEW, eligibility=narrow)).all()


def test_columns_that_are_no_features_are_no_differences():
    table = X.assign(hospital=np.arange(N) % 7)
    encoder = TableEncoder(ignored_features=["hospital"])
    knn = SoftStepKNeighborsRegressor(3, max_iter=1, table_encoder=encoder, trend=None)
    knn.fit(table, y)
    query = NEW[:1].assign(hospital=1000)
    columns = compare_columns(knn, query, table)
    assert [column.is_feature for column in columns] == [True, True, True, False]
    marked = knn.explain(query, 3, features=table)["differs"]
    assert not marked.str.contains("hospital").any()
    # Another table, such as that of a pipeline, has no columns of the encoder.
    assert all(c.is_feature for c in compare_columns(knn, query[["age"]], table[["age"]]))


def test_reports_say_which_rule_was_too_narrow():
    table = X.assign(lat=rng.uniform(-1, 1, N), long=rng.uniform(-1, 1, N))
    rule = within("age", 0).at_least(4, relax=[within("age", 90)])
    knn = clone(PLAIN_KNN).fit(table, y, eligibility=rule)
    query = table[:1].set_axis(["new"])
    assert (
        "since fewer than 4 are by <code>within(&#39;age&#39;, 0)"
        in NeighborsReport(knn, query)._repr_html_()
    )
    wide = within("age", 90).at_least(4)
    assert "since fewer" not in NeighborsReport(knn, query, eligibility=wide)._repr_html_()
    with pytest.raises(ValueError, match=r"or eligible by within\('age', 0\).at_least\(90\)"):
        NeighborsReport(knn, query, eligibility=within("age", 0).at_least(90))


@pytest.mark.filterwarnings("error:The given NumPy array is not writable")
def test_a_mask_may_be_read_only():
    knn = clone(PLAIN_KNN).fit(X, y)
    mask = np.broadcast_to(np.arange(N) < 5, (3, N))
    _, found = knn.kneighbors(NEW, 5, eligibility=mask)
    assert (np.sort(found) == np.arange(5)).all()


def test_queries_are_named_in_every_block(monkeypatch):
    knn = clone(PLAIN_KNN).fit(X[["age"]].to_numpy(), y, eligibility=within(0, 5))
    ages = np.full((30_000, 1), X["age"].median())
    ages[-1] = 1e6
    with pytest.warns(UserWarning, match="such as query 29999, by"):
        knn.predict(ages)
