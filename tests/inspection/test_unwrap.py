"""Explanations do not stop at a pipeline: oracles are the same steps, one by one."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from inner.estimators import NeighborClassifier, NeighborRegressor
from matplotlib.figure import Figure
from sklearn import config_context
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from nona_sklearn import (
    EmbeddingDisplay,
    IntervalDisplay,
    NeighborsDisplay,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsRegressor,
    StepDisplay,
    unwrap,
)
from nona_sklearn.pipelines import UnwrappedClassifier, UnwrappedRegressor

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

N, Q = 60, 8
NAMES = [f"house {i}" for i in range(N + Q)]


def nona(**params):
    params = {"n_estimators": 1, "max_iter": 2, "hidden_layer_sizes": (8,), **params}
    return NONARegressor(random_state=0, **params)


def logarithms(regressor):
    return TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp)


@pytest.fixture(scope="module")
def houses(plane):
    """Rows with names, and prices, which are positive and skewed."""
    X = pd.DataFrame(np.concatenate(plane[:2])[: N + Q], NAMES, ["width", "height"])
    prices = np.exp(np.concatenate(plane[2:])[: N + Q])
    return X[:N], prices[:N], X[N:], prices[N:]


@pytest.fixture(scope="module")
def fitted(houses):
    """A model of logarithms behind a pipeline, and the same estimator fitted without it."""
    X, prices, X_test, _ = houses
    model = make_pipeline(StandardScaler(), logarithms(nona())).fit(X, prices)
    scaler = StandardScaler().fit(X)
    inner = nona().fit(scaler.transform(X), np.log(prices))
    return model, inner, scaler.transform(X_test)


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted[0])


# -- what is found ------------------------------------------------------------------------------


def nestings():
    search = {"cv": 2}
    return {
        "itself": nona(),
        "pipeline": make_pipeline(StandardScaler(), "passthrough", PCA(2), nona()),
        "targets": logarithms(nona()),
        "search": GridSearchCV(nona(), {"embedding_dim": [2]}, **search),
        "frozen": FrozenEstimator(nona()),
        "pipeline in targets": logarithms(make_pipeline(StandardScaler(), nona())),
        "pipelines": make_pipeline(StandardScaler(), make_pipeline(PCA(2), nona())),
        "everything": make_pipeline(
            StandardScaler(),
            logarithms(
                GridSearchCV(
                    make_pipeline(
                        PCA(2), TransformedTargetRegressor(nona(), transformer=StandardScaler())
                    ),
                    {"transformedtargetregressor__regressor__embedding_dim": [2]},
                    **search,
                )
            ),
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("nesting", nestings())
def test_predictions_are_those_of_the_model(houses, nesting):
    """Whatever it is in: contributions sum to the model's own prediction."""
    X, prices, X_test, truth = houses
    model = nestings()[nesting]
    with pytest.raises(NotFittedError):
        unwrap(model)
    if nesting == "frozen":
        model = FrozenEstimator(model.estimator.fit(X, prices))
    model.fit(X, prices)
    ours = unwrap(model)
    assert isinstance(ours.estimator, NeighborRegressor)
    expected = model.predict(X_test)
    np.testing.assert_allclose(ours.predict(X_test), expected, rtol=1e-9)
    table = ours.explain(X_test, 3)
    sums = table.groupby("query", sort=False)["contribution"].sum()
    assert sums.index.tolist() == NAMES[N:]
    np.testing.assert_allclose(sums, expected, rtol=1e-9)
    assert ours.score(X_test, truth) == pytest.approx(r2_score(truth, expected))
    rows = ours.heaviest_neighbors(X_test, 3)[1]
    named = table[~table["neighbor"].isin(["others", "transformation"])]
    np.testing.assert_allclose(named["target"], prices[rows.ravel()], rtol=1e-9)
    low, high = ours.predict_quantiles(X_test, [0.2, 0.8]).T
    assert (low < high).all()
    np.testing.assert_allclose(ours.predict_cdf(X_test[:1], high[:1]), [[0.8]], atol=0.02)
    assert unwrap(ours) is ours
    again = unwrap(pickle.loads(pickle.dumps(model)))
    np.testing.assert_array_equal(again.predict(X_test), ours.predict(X_test))


def test_alone_its_results_are_those_of_the_estimator(houses):
    X, prices, X_test, truth = houses
    reg = nona().fit(X, prices)
    ours = unwrap(reg)
    assert ours.explain(X_test).equals(reg.explain(X_test))
    assert ours.influence(X_test, truth).equals(reg.influence(X_test, truth))
    for actual, expected in zip(
        ours.predict(X_test, return_std=True), reg.predict(X_test, True), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    for quantiles in (0.5, [0.1, 0.9]):
        expected = reg.predict_quantiles(X_test, quantiles)
        np.testing.assert_array_equal(ours.predict_quantiles(X_test, quantiles), expected)
    np.testing.assert_array_equal(ours.predict_cdf(None, 2.0), reg.predict_cdf(None, 2.0))
    assert ours.score(None, prices) == reg.score(None, prices)


@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(),
        make_pipeline(StandardScaler(), LinearRegression()),
        Pipeline([("ours", nona()), ("last", "passthrough")]),
        "a text",
    ],
    ids=["estimator", "pipeline", "ours is not last", "no estimator"],
)
def test_a_model_without_ours_is_an_error(houses, model):
    if isinstance(model, LinearRegression | Pipeline):
        model.fit(houses[0], houses[1])
    message = r"estimator must be a NONARegressor .*, got (Lin|Pipe|'a t)"
    with pytest.raises(TypeError, match=message):
        unwrap(model)


def test_a_search_without_its_best_estimator_is_not_fitted(houses):
    search = GridSearchCV(nona(), {"embedding_dim": [2]}, cv=2, refit=False, scoring="r2")
    with pytest.raises(NotFittedError):
        unwrap(search.fit(houses[0], houses[1]))


@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV])
@pytest.mark.parametrize("wrap", [lambda model: model, FrozenEstimator, make_pipeline, logarithms])
def test_a_search_that_is_not_fitted_is_an_error(search, wrap):
    with pytest.raises(NotFittedError):
        unwrap(wrap(search(nona(), {"embedding_dim": [2, 3]})))


@pytest.mark.parametrize(
    ("kind", "unwrapped"),
    [(NeighborRegressor, UnwrappedRegressor), (NeighborClassifier, UnwrappedClassifier)],
)
def test_methods_are_those_of_the_estimator(kind, unwrapped):
    """With its docstrings and signatures, for help() and completion by tab."""
    taking_rows = {
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and {"X", "y", "ids"} & {*inspect.signature(method).parameters}
    }
    own = {name for name in dir(unwrapped) if not name.startswith("_")}
    assert taking_rows - own == {"fit", "fit_transform"}
    for name in taking_rows & own:
        method, original = getattr(unwrapped, name), getattr(kind, name)
        parameters = (
            [(each.name, each.kind, each.default) for each in signature.parameters.values()]
            for signature in (inspect.signature(method), inspect.signature(original))
        )
        assert next(parameters) == next(parameters)  # the annotations are the estimator's
        assert inspect.getdoc(method) == inspect.getdoc(original)


def test_wrong_arguments_are_errors(model, houses):
    ours = unwrap(model)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'X'"):
        ours.predict()
    with pytest.raises(ValueError, match="n_neighbors must be an integer from 1 to 60, got 0"):
        ours.explain(houses[2], 0)
    with pytest.raises(ValueError, match="quantiles must be from 0 to 1, got 2"):
        ours.predict_quantiles(houses[2], 2)
    with pytest.raises(ValueError, match=r"return_std must be True or False, got \[0\.1, 0\.9\]"):
        ours.predict(houses[2], [0.1, 0.9])
    with pytest.raises(ValueError, match="y must be what the target can be, got -1"):
        ours.predict_cdf(houses[2], -1)
    with pytest.raises(ValueError, match=r"transformer takes, got -1\.0 in row 0"):
        ours.set_neighbor_targets(np.full(N, -1.0))  # of which there is no logarithm
    with pytest.raises(ValueError, match=r"Input y contains infinity: inf in row 59$"):
        ours.set_neighbor_targets(np.r_[np.ones(N - 1), np.inf])


# -- in the user's units ------------------------------------------------------------------------


def test_weights_are_those_of_the_inner_estimator(fitted, houses):
    model, inner, scaled = fitted
    ours, X_test = unwrap(model), houses[2]
    for method in ("kneighbors", "heaviest_neighbors", "neighbor_weights", "transform"):
        found, expected = getattr(ours, method)(X_test), getattr(inner, method)(scaled)
        if method == "neighbor_weights":
            found, expected = found.toarray(), expected.toarray()
        np.testing.assert_array_equal(found, expected)
    assert ours.neighborhood(X_test).equals(inner.neighborhood(scaled).assign(query=NAMES[N:]))
    assert ours.neighborhood().equals(inner.neighborhood())
    np.testing.assert_array_equal(ours.embed(X_test).embeddings, inner.embed(scaled).embeddings)
    assert ours.explain(ours.embed(X_test)).equals(ours.explain(X_test))
    change = inner.influence(scaled, np.log(houses[3]))
    assert ours.influence(X_test, houses[3]).equals(change)  # in logarithms


def test_prices_come_back_in_prices(fitted, houses):
    model, inner, scaled = fitted
    ours, (_, prices, X_test, _) = unwrap(model), houses
    np.testing.assert_allclose(ours.predict(X_test), np.exp(inner.predict(scaled)))
    np.testing.assert_allclose(ours.predict(None), np.exp(inner.predict(None)))
    assert ours.score(None, prices) == pytest.approx(r2_score(prices, ours.predict(None)))
    levels = [0.1, 0.5, 0.9]
    quantiles = np.exp(inner.predict_quantiles(scaled, levels))
    np.testing.assert_allclose(ours.predict_quantiles(X_test, levels), quantiles)
    np.testing.assert_allclose(ours.predict_quantiles(X_test, 0.5), quantiles[:, 1])
    some = np.quantile(prices, levels)
    expected = inner.predict_cdf(scaled, np.log(some))
    np.testing.assert_array_equal(ours.predict_cdf(X_test, some), expected)
    assert (ours.predict_cdf(X_test, 0) < 1e-9).all()  # its logarithm is minus infinity
    drawn = np.exp(inner.sample_y(scaled, 4, random_state=1))
    np.testing.assert_allclose(ours.sample_y(X_test, 4, random_state=1), drawn)

    for k in (3, None):
        table, plain = ours.explain(X_test, k), inner.explain(scaled, k)
        mean_of_logs = table["neighbor"] == "transformation"
        assert mean_of_logs.sum() == Q
        weighted, rest = table[~mean_of_logs], table[mean_of_logs]
        np.testing.assert_array_equal(weighted["weight"], plain["weight"])
        for column in ("target", "adjusted_target"):
            np.testing.assert_allclose(weighted[column], np.exp(plain[column]))
        product = weighted["weight"] * weighted["adjusted_target"]
        np.testing.assert_allclose(weighted["contribution"], product)
        assert (rest["weight"] == 0).all()
        assert (rest["contribution"] < 0).all()  # Jensen's inequality
        sums = table.groupby("query", sort=False)["contribution"].sum()
        np.testing.assert_allclose(sums, ours.predict(X_test), rtol=1e-6)


def test_a_linear_transformation_leaves_nothing(houses):
    X, prices, X_test, _ = houses
    model = TransformedTargetRegressor(nona(), transformer=StandardScaler()).fit(X, prices)
    table = unwrap(model).explain(X_test)
    assert {*table["neighbor"]} <= {*NAMES}
    sums = table.groupby("query", sort=False)["contribution"].sum()
    np.testing.assert_allclose(sums, model.predict(X_test), rtol=1e-5)


def test_standard_deviations_are_of_the_distribution_in_prices(fitted, houses):
    """Its width is that of draws, to their chance error."""
    ours, X_test = unwrap(fitted[0]), houses[2]
    mean, std = ours.predict(X_test, return_std=True)
    np.testing.assert_array_equal(mean, ours.predict(X_test))
    drawn = ours.sample_y(X_test, 20_000, random_state=0).std(axis=1)
    np.testing.assert_allclose(std, drawn, rtol=0.06)


def test_units_that_are_a_multiple_make_deviations_one(houses):
    X, prices, X_test, _ = houses
    scaled = TransformedTargetRegressor(nona(), transformer=StandardScaler()).fit(X, prices)
    unit = scaled.transformer_.scale_[0]
    std = scaled.regressor_.predict(X_test, return_std=True)[1]
    ours = unwrap(scaled).predict(X_test, return_std=True)[1]
    np.testing.assert_allclose(ours, unit * std, rtol=0.02)


def test_a_falling_transformation_turns_quantiles_around(houses):
    X, prices, X_test, _ = houses
    falling = TransformedTargetRegressor(
        nona(), func=lambda y: 1 / y, inverse_func=lambda y: 1 / y, check_inverse=False
    )
    ours = unwrap(falling.fit(X, prices))
    inner = ours.estimator
    np.testing.assert_allclose(
        ours.predict_quantiles(X_test, [0.1, 0.8]), 1 / inner.predict_quantiles(X_test, [0.9, 0.2])
    )
    cdf = ours.predict_cdf(X_test, [1.0, 2.0])
    assert (np.diff(cdf) > 0).all()
    np.testing.assert_allclose(cdf, 1 - inner.predict_cdf(X_test, [1.0, 0.5]), atol=1e-9)


def test_probabilities_of_atoms_include_them(houses):
    """Without calibration a distribution is of the bank's targets: at most the dearest is sure."""
    X, prices, X_test, _ = houses
    for sign in (1, -1):
        transformer = FunctionTransformer(lambda y, s=sign: s * y, lambda y, s=sign: s * y)
        plain = TransformedTargetRegressor(nona(adjust=False), transformer=transformer)
        ours = unwrap(plain.fit(X, prices))
        bank = ours.estimator.bank_
        weights = ours.neighbor_weights(X_test).toarray()
        ours.estimator.calibration_ = type(bank.calibration)()
        some = np.sort(prices)[[0, 20, N - 1]]
        expected = np.stack([weights[:, prices <= price].sum(axis=1) for price in some], axis=1)
        np.testing.assert_allclose(ours.predict_cdf(X_test, some), expected, atol=1e-5)
        np.testing.assert_allclose(ours.predict_cdf(X_test, some[2]), 1)


@pytest.mark.parametrize("library", [np, pd, pl])
def test_several_outputs(houses, library):
    """One rises with what is learned and one falls; each has its own quantiles."""
    X, prices, X_test, _ = houses
    both = np.column_stack([prices, 1 / prices])
    transformer = FunctionTransformer(
        lambda y: np.column_stack([np.log(y[:, 0]), -y[:, 1]]),
        lambda y: np.column_stack([np.exp(y[:, 0]), -y[:, 1]]),
    )
    y = both if library is np else library.DataFrame(dict(zip("ab", both.T, strict=True)))
    model = TransformedTargetRegressor(nona(), transformer=transformer).fit(X, y)
    ours, inner = unwrap(model), model.regressor_
    np.testing.assert_allclose(ours.predict(X_test), model.predict(X_test))
    low, high = np.moveaxis(inner.predict_quantiles(X_test, [0.1, 0.9]), 1, 0)
    expected = np.stack([np.exp(low[:, 0]), -high[:, 1]], axis=1)
    np.testing.assert_allclose(ours.predict_quantiles(X_test, 0.1), expected)
    cdf = ours.predict_cdf(X_test, [0.5, 1.0])
    assert cdf.shape == (Q, 2, 2)
    logs, negative = (
        inner.predict_cdf(X_test, points) for points in (np.log([0.5, 1]), [-0.5, -1])
    )
    np.testing.assert_allclose(cdf[..., 0], logs[..., 0])
    np.testing.assert_allclose(cdf[..., 1], 1 - negative[..., 1], atol=1e-9)
    assert ours.sample_y(X_test, 3).shape == (Q, 2, 3)
    assert ours.predict(X_test, return_std=True)[1].shape == (Q, 2)
    sums = ours.explain(X_test, 3).groupby("query", sort=False)
    np.testing.assert_allclose(
        sums[["contribution_0", "contribution_1"]].sum(), model.predict(X_test)
    )
    ids = ours.add_neighbors(X_test[:1], both[:1])
    np.testing.assert_allclose(inner.bank_.targets[ids[0]], [np.log(both[0, 0]), -both[0, 1]])


@pytest.mark.slow
def test_targets_that_are_mixed_have_draws_but_no_quantiles(houses):
    X, prices, X_test, _ = houses
    both = np.column_stack([prices, prices**2, np.sqrt(prices)])
    for n_components in (2, 3):
        mixed = TransformedTargetRegressor(
            nona(), transformer=PCA(n_components), check_inverse=False
        )
        mixed.fit(X, both)
        ours = unwrap(mixed)
        np.testing.assert_allclose(ours.predict(X_test), mixed.predict(X_test))
        assert ours.sample_y(X_test, 5).shape == (Q, 3, 5)
        for evaluate in (ours.predict_quantiles, lambda X, u=ours: u.predict_cdf(X, 1.0)):
            with pytest.raises(ValueError, match="transformed together with others"):
                evaluate(X_test)


# -- names --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_names_of_the_bank_survive_if_a_table_or_y_holds_them(houses):
    """The frame itself, that of a step, or the index of y."""
    X, prices, X_test, _ = houses
    series = pd.Series(prices, index=X.index, name="price")
    arrays = make_pipeline(StandardScaler(), nona())
    frames = make_pipeline(StandardScaler(), nona()).set_output(transform="pandas")
    for model, y in ((arrays, series), (frames, prices), (frames, series)):
        ours = unwrap(model.fit(X, y))
        assert ours.influence(X_test)["neighbor"].tolist() == NAMES[:N]
        assert ours.target_names_ == (None if y is prices else ("price",))
    assert unwrap(arrays.fit(X, prices)).influence(X_test)["neighbor"].tolist() == list(range(N))
    bank = unwrap(arrays.fit(X, series))
    assert bank.remove_neighbors(names=NAMES[3]) is bank
    assert NAMES[3] not in bank.influence()["neighbor"].tolist()


def test_added_rows_take_their_names_from_y_if_the_table_has_none(model, houses):
    """Although the model's own transformations of the table and of y lose them."""
    ours, X, truth = unwrap(model), houses[2][:2].reset_index(drop=True), houses[3][:2]
    ours.add_neighbors(X, pd.Series(truth, index=["a", "b"]))
    # Each is its own nearest neighbour, at no distance.
    names = ours.heaviest_neighbors(X, 1, return_names=True)[1]
    assert names.tolist() == [["a"], ["b"]]


@pytest.mark.parametrize("inner", ["array", "pandas"])
def test_results_of_tables_are_tables(houses, inner):
    """Whether each transformer makes tables, or all do by scikit-learn's own setting."""
    X, prices, X_test, _ = houses
    with config_context(transform_output="pandas" if inner == "pandas" else "default"):
        model = make_pipeline(StandardScaler(), logarithms(nona())).fit(X, prices)
        ours = unwrap(model)
        expected = model.predict(X_test)
        np.testing.assert_allclose(ours.predict(X_test, True)[0], expected)
        names = ours.explain(X_test, 2)["neighbor"].tolist()
        assert ours.explain(X_test, 2)["query"].tolist() == [
            q for q in X_test.index for _ in "1234"
        ]
        if inner == "pandas":  # the scaler passes its rows on with their names
            assert {*names} <= {*NAMES, "others", "transformation"}
            assert ours.transform(X_test).index.tolist() == X_test.index.tolist()
        ours.add_neighbors(X_test, expected)
        assert ours.kneighbors(X_test, 1, False, return_names=True).shape == (Q, 1)


def test_polars_all_the_way(houses):
    X, prices, X_test, _ = houses
    X, X_test = (pl.DataFrame(dict(table.items())) for table in (X, X_test))
    model = make_pipeline(StandardScaler().set_output(transform="polars"), nona())
    ours = unwrap(model.fit(X, pl.Series("price", prices)))
    assert ours.target_names_ == ("price",)
    np.testing.assert_allclose(ours.predict(X_test), model.predict(X_test))
    assert ours.explain(X_test[:2], 1)["query"].tolist() == [0, 0, 1, 1]


# -- edits --------------------------------------------------------------------------------------


def test_edits_are_edits_of_the_model(model, houses):
    _, prices, X_test, truth = houses
    ours = unwrap(model)
    before = model.predict(X_test)
    ids = ours.add_neighbors(X_test, pd.Series(truth))
    assert ids.tolist() == list(range(N, N + Q))
    assert (model.predict(X_test) != before).all()  # they are in the bank, at no distance
    np.testing.assert_allclose(ours.estimator.bank_.targets[N:], np.log(truth))
    assert ours.remove_neighbors(ids=ids) is ours
    np.testing.assert_array_equal(model.predict(X_test), before)

    calibrated = copy.deepcopy(ours.estimator)
    assert ours.calibrate(X_test, truth) is ours
    scaled = model[0].transform(X_test)
    assert ours.estimator.calibration_ == calibrated.calibrate(scaled, np.log(truth)).calibration_
    assert len(ours.compress(20, X_test).estimator.bank_) == 20

    ours.set_neighbor_targets(2 * prices[ours.estimator.bank_.ids])
    weights = ours.neighbor_weights(X_test)
    kept = prices[ours.estimator.bank_.ids]
    np.testing.assert_allclose(
        model.predict(X_test), np.exp(weights @ np.log(2 * kept)), rtol=1e-5
    )


def test_the_size_of_a_neighbourhood(houses):
    X, prices, X_test, _ = houses
    knn = SoftStepKNeighborsRegressor(similarity="log_l2", max_iter=1, random_state=0)
    model = make_pipeline(StandardScaler(), knn).fit(X, prices)
    sizes = model[-1].neighborhood(model[0].transform(X_test))["soft_n_neighbors"]
    np.testing.assert_array_equal(unwrap(model).neighborhood(X_test)["soft_n_neighbors"], sizes)


# -- pictures -----------------------------------------------------------------------------------


def test_displays_draw_prices(fitted, houses):
    model, (_, prices, X_test, truth) = fitted[0], houses
    ours, ax = unwrap(model), lambda: Figure().subplots()
    neighbors = NeighborsDisplay.from_estimator(
        model, X_test[:1], truth[0], n_neighbors=10, ax=ax()
    )
    np.testing.assert_allclose(neighbors.prediction, model.predict(X_test[:1])[0])
    ids = ours.heaviest_neighbors(X_test[:1], 10)[1][0]
    np.testing.assert_allclose(neighbors.targets, prices[ids])
    adjusted = ours.explain(X_test[:1], 10)["adjusted_target"][:10]
    np.testing.assert_allclose(neighbors.adjusted_targets, adjusted)
    price = pd.Series(truth, name="price")
    intervals = IntervalDisplay.from_estimator(model, X_test, price, confidence=0.8, ax=ax())
    np.testing.assert_allclose(intervals.intervals, ours.predict_quantiles(X_test, [0.1, 0.9]))
    assert intervals.ax_.get_ylabel() == "price"
    embedding = EmbeddingDisplay.from_estimator(model, ax=ax())
    np.testing.assert_allclose(embedding.targets, prices)
    others = EmbeddingDisplay.from_estimator(model, X_test, truth, ax=ax())
    np.testing.assert_array_equal(others.targets, truth)


def test_the_step_and_the_target_inside_a_pipeline(houses):
    X, prices, X_test, _ = houses
    reg = nona(softstep=SoftStep("s1", "pointwise"))
    model = make_pipeline(StandardScaler(), reg).fit(X, pd.Series(prices, name="price"))
    steps = StepDisplay.from_estimator(model, X_test, n_points=5, ax=Figure().subplots()).steps
    expected = StepDisplay.from_estimator(
        model[-1], model[0].transform(X_test), n_points=5, ax=Figure().subplots()
    )
    np.testing.assert_array_equal(steps, expected.steps)
    intervals = IntervalDisplay.from_estimator(model, ax=Figure().subplots())
    assert intervals.target_name == "price"


def test_a_target_that_rises_and_falls_has_no_quantiles():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.uniform(0.1, 3, size=60)
    folded = TransformedTargetRegressor(
        NONARegressor(n_estimators=1, max_iter=2, random_state=0),
        func=np.abs,
        inverse_func=lambda v: np.sin(9 * v),
        check_inverse=False,
    )
    inside = unwrap(folded.fit(X, y))
    with pytest.raises(ValueError, match="rises and falls"):
        inside.predict_quantiles(X, [0.1, 0.9])
    assert inside.sample_y(X[:1], 5).shape == (1, 5)


def test_unknown_outputs_stay_unknown():
    """A row of several outputs is transformed back only if all of them are known."""
    y = np.exp(np.random.default_rng(0).normal(size=(30, 2)))
    inner = NONARegressor(n_estimators=1, max_iter=1)
    model = TransformedTargetRegressor(inner, func=np.log, inverse_func=np.exp).fit(y, y)
    values = np.array([[0.0, 1.0], [np.nan, 1.0]])
    inside = unwrap(model)
    back = inside.back(values)
    np.testing.assert_allclose(back[0], np.exp(values[0]))
    assert np.isnan(back[1]).all()


@pytest.mark.slow
def test_columns_of_a_pipeline_are_those_after_its_steps():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X, y = X[:120], y[:120]
    steps = StandardScaler().set_output(transform="pandas"), nona(n_estimators=1)
    model = make_pipeline(*steps).fit(X[:-4], y[:-4])
    inner, scaled = model[-1], model[0].transform(X)
    for of in ("adjustments", "distances"):
        found = unwrap(model).attribute(X[-4:], X[:-4], of=of, n_neighbors=2)
        expected = inner.attribute(scaled[-4:], scaled[:-4], of=of, n_neighbors=2)
        pd.testing.assert_frame_equal(found, expected)
    own = unwrap(model).attribute(None, X[:-4], n_neighbors=1, of="distances")
    assert len(own) == 116
    logs = logarithms(nona(n_estimators=1)).fit(X[:-4], y[:-4])
    for of in ("adjustments", "predictions"):
        with pytest.raises(ValueError, match=f"of='{of}' needs targets that are not transformed"):
            unwrap(logs).attribute(X[-4:], X[:-4], of=of)
    found, expected = (
        each.attribute(X[-4:], X[:-4], of="distances")
        for each in (unwrap(logs), unwrap(logs).estimator)
    )
    pd.testing.assert_frame_equal(found, expected)
