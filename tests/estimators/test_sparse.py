"""Sparse X: narrow matrices are as dense ones, wide ones are reduced to components."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from inner.data import (
    MOST_COMPONENTS,
    ROWS_PER_CHOICE,
    ROWS_PER_COMPONENT,
    SparseEncoder,
    TableEncoder,
)
from inner.estimators import ROWS_PER_SPARSE
from inner.training import loop
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    export_onnx,
    load,
    save,
    unwrap,
)

N = 60
RNG = np.random.default_rng(0)
NARROW = sparse.csr_array(RNG.random((N, 12)) * (RNG.random((N, 12)) < 0.4))
SHAPE = N, MOST_COMPONENTS + 50
WIDE = sparse.csr_array(RNG.random(SHAPE) * (RNG.random(SHAPE) < 0.05))
Y = NARROW.toarray() @ np.arange(12.0) + 10 * WIDE.toarray()[:, :20].sum(axis=1)
CLASSES = np.where(np.median(Y) < Y, "high", "low")
FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr"]
KINDS = [NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier]
EACH = pytest.mark.parametrize("kind", KINDS)
BOTH_WIDTHS = pytest.mark.parametrize("X", [NARROW, WIDE], ids=["narrow", "wide"])
# A fit of two epochs has not converged.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make(kind, **params):
    defaults = {"max_iter": 2, "random_state": 0}
    if kind in (NONARegressor, NONAClassifier):
        defaults["n_estimators"] = 1
    return kind(**defaults | params)


def targets(kind):
    return CLASSES if "Classifier" in kind.__name__ else Y


def answers(estimator, X):
    """Predictions, or probabilities."""
    return getattr(estimator, "predict_proba", estimator.predict)(X)


@pytest.fixture
def untrained(monkeypatch):
    monkeypatch.setattr(loop, "train_network", None)  # no training may start


# -- sparse or dense, in any format --------------------------------------------------------


@EACH
def test_a_narrow_matrix_is_the_same_as_a_dense_one(kind):
    weights = np.arange(N) % 4.0
    groups = np.arange(N) // 3
    options = {"sample_weight": weights, "groups": groups}
    dense = make(kind).fit(NARROW.toarray(), targets(kind), **options)
    thin = make(kind).fit(NARROW, targets(kind), **options)
    assert isinstance(thin.features_, TableEncoder)
    expected = answers(dense, NARROW.toarray())
    for estimator in dense, thin:
        np.testing.assert_array_equal(answers(estimator, NARROW), expected)


@EACH
def test_queries_of_a_wide_fit_may_be_dense(kind):
    estimator = make(kind).fit(WIDE, targets(kind))
    assert isinstance(estimator.features_, SparseEncoder)
    expected = answers(estimator, WIDE)
    for X in WIDE.toarray(), WIDE.toarray().tolist():
        np.testing.assert_array_equal(answers(estimator, X), expected)


@pytest.mark.slow
@BOTH_WIDTHS
@pytest.mark.parametrize("as_matrix", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_formats(X, name, as_matrix):
    """With weights, whose rows are selected before the fit, and those of a validation set."""
    X, valid = X[:40], X[40:]
    options = {"y_val": Y[40:], "sample_weight": np.arange(40) % 3}
    options["sample_weight_val"] = np.arange(20) % 3
    expected = make(NONARegressor).fit(X, Y[:40], X_val=valid, **options).predict(valid)
    container = getattr(sparse, f"{name}_{'matrix' if as_matrix else 'array'}")
    same, queries = container(X), container(valid)
    reg = make(NONARegressor).fit(same, Y[:40], X_val=queries, add_validation=True, **options)
    assert len(reg.bank_) > 40 - 14
    reg.remove_neighbors(ids=reg.bank_.ids.numpy()[reg.bank_.ids.numpy() >= 40])
    np.testing.assert_allclose(reg.predict(queries), expected, rtol=1e-5)


@pytest.mark.slow
def test_columns_of_counts_and_truth_values():
    for dtype in (np.int64, bool, np.float32):
        X = (10 * WIDE).astype(dtype)
        reg = make(NONARegressor).fit(X, Y)
        expected = make(NONARegressor).fit(X.astype(float), Y).predict(X)
        np.testing.assert_array_equal(reg.predict(X), expected)


def test_splits_of_a_splitter():
    options = {"validation_fraction": GroupKFold(2)}
    reg = make(NONARegressor, **options).fit(WIDE.tocoo(), Y, groups=np.arange(N) // 2)
    (rows,) = reg.validation_indices_
    assert len(rows) == N // 2


# -- of use --------------------------------------------------------------------------------


@pytest.mark.slow
def test_texts_in_a_pipeline():
    animals = [f"the {a} and the {b}" for a in ("cat", "dog", "cow") for b in ("hen", "pig")]
    sky = [f"a {a} near a {b}" for a in ("star", "moon", "sun") for b in ("comet", "cloud")]
    texts, kinds = 4 * (animals + sky), 4 * (["farm"] * 6 + ["sky"] * 6)
    clf = make_pipeline(TfidfVectorizer(analyzer="char", ngram_range=(1, 9)), NONAClassifier())
    clf.set_params(nonaclassifier__n_estimators=1, nonaclassifier__random_state=0)
    clf.fit(texts, kinds)
    assert isinstance(clf[-1].features_, SparseEncoder)
    assert clf.predict(["the cow and the cat", "a sun near a moon"]).tolist() == ["farm", "sky"]
    rows = unwrap(clf).heaviest_neighbors(texts[:2], n_neighbors=3)[1]
    assert (rows % 12 < 6).all()


def test_one_hot_columns():
    levels = np.array(["a", "b", "c", "d"])[np.arange(N) % 4][:, None]
    y = np.arange(N) % 4 * 1.0
    reg = make_pipeline(OneHotEncoder(), make(NONARegressor, max_iter=60))
    reg.fit(levels, y)
    assert reg.score(levels, y) > 0.9


def test_the_given_space_keeps_distances():
    """All components of few rows: the space of the features."""
    options = {"learn_feature_weights": False, "similarity": "l2", "trend": None}
    knn = make(SoftStepKNeighborsRegressor, **options).fit(WIDE, Y)
    dense = make(SoftStepKNeighborsRegressor, **options).fit(WIDE.toarray(), Y)
    np.testing.assert_allclose(knn.predict(WIDE), dense.predict(WIDE), rtol=1e-3)
    np.testing.assert_array_equal(
        knn.heaviest_neighbors()[1][:, 0], dense.heaviest_neighbors()[1][:, 0]
    )


@pytest.mark.parametrize(
    ("estimator", "scaler", "n_components", "n_scores"),
    [
        (make(NONARegressor), None, N // ROWS_PER_CHOICE, 1),
        (
            make(SoftStepKNeighborsRegressor, hidden_layer_sizes=(4,)),
            None,
            N // ROWS_PER_COMPONENT,
            1,
        ),
        (make(SoftStepKNeighborsRegressor), StandardScaler, N, 0),
    ],
    ids=["nona", "learned", "given"],
)
def test_components_their_scaler_and_scores(estimator, scaler, n_components, n_scores):
    estimator.fit(WIDE, Y)
    assert scaler is (estimator.scaler_ and type(estimator.scaler_))
    features = estimator.features_
    assert features.n_components == n_components
    assert features.transform(WIDE).shape == (N, n_components + n_scores)


@pytest.mark.parametrize("further", [{"groups": np.arange(N) // 2}, {"times": np.arange(N)}])
def test_with_groups_or_times_there_are_no_scores(further):
    reg = make(NONARegressor).fit(WIDE, Y, **further)
    assert reg.features_.scores_ is None


@pytest.mark.parametrize(
    ("kind", "y", "n_scores"),
    [
        (NONARegressor, np.column_stack([Y, -Y]), 2),
        (NONAClassifier, CLASSES, 1),
        (NONAClassifier, np.digitize(Y, np.quantile(Y, [0.3, 0.6])), 3),
        (NONAClassifier, np.arange(N) % 20, 0),
    ],
    ids=["outputs", "two classes", "three classes", "many classes"],
)
def test_there_is_a_score_for_each_output_and_class(kind, y, n_scores):
    features = make(kind).fit(WIDE, y).features_
    assert features.transform(WIDE).shape[1] == N // ROWS_PER_CHOICE + n_scores


@pytest.mark.slow
def test_what_is_linear_in_many_columns_is_found():
    """As in texts. With components alone, R^2 was 0.23."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.random((600, 400)) * (rng.random((600, 400)) < 0.2))
    y = X @ (np.where(np.arange(400) % 20 == 0, 1, 0) * rng.normal(size=400))
    reg = NONARegressor(n_estimators=1, random_state=0).fit(X[:450], y[:450])
    assert reg.score(X[450:], y[450:]) > 0.9


@pytest.mark.slow
def test_networks_choose_components_by_the_targets():
    """Also of many rows, of which a dense table with as many columns is not wide."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.random((2000, 320)) * (rng.random((2000, 320)) < 0.02))
    reg = make(NONARegressor).fit(X, X[:, [0]].toarray().ravel() + rng.normal(size=2000))
    chosen = reg.network_.embedding[0]
    assert chosen.in_features == reg.features_.n_components + 1 == 321
    n_train = 2000 - len(reg.validation_indices_[0])
    assert chosen.out_features == n_train // ROWS_PER_SPARSE + 1
    assert not chosen.weight.requires_grad


@pytest.mark.slow
@EACH
def test_files_and_pickles(kind, tmp_path):
    estimator = make(kind).fit(WIDE, targets(kind))
    save(estimator, tmp_path / "model.safetensors")
    for copy in load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(estimator)):
        np.testing.assert_array_equal(answers(copy, WIDE), answers(estimator, WIDE))


@BOTH_WIDTHS
def test_added_rows(X):
    reg = make(NONARegressor, adjust=False, n_neighbors=1).fit(X[:50], Y[:50])
    ids = reg.add_neighbors(X[50:].tocoo(), Y[50:])
    np.testing.assert_allclose(reg.predict(X[50:]), Y[50:], rtol=1e-6)
    assert reg.heaviest_neighbors(X[50:], 1)[1].ravel().tolist() == ids.tolist()


@pytest.mark.slow
def test_names_of_embedding_dimensions():
    reg = make(NONARegressor, embedding_dim=2).fit(WIDE, Y)
    assert reg.get_feature_names_out().tolist() == ["nonaregressor0", "nonaregressor1"]
    assert reg.n_features_in_ == WIDE.shape[1]


@pytest.mark.slow
def test_warm_start_keeps_the_vectors():
    """The weights that training goes on from are those of its components."""
    reg = make(NONARegressor, warm_start=True).fit(WIDE, Y)
    vectors = reg.features_.svd_.components_
    reg.fit(WIDE[::-1][:50], Y[::-1][:50])
    np.testing.assert_array_equal(reg.features_.svd_.components_, vectors)
    reg.set_params(warm_start=False).fit(WIDE[:50], Y[:50])
    assert len(reg.features_.svd_.components_) == 50 // ROWS_PER_CHOICE


@pytest.mark.slow
def test_warm_start_needs_the_columns_of_the_earlier_fit():
    reg = make(NONARegressor, warm_start=True).fit(WIDE, Y)
    with pytest.raises(ValueError, match=r"needs the columns .* X had 350, and has 349 now"):
        reg.fit(WIDE[:, 1:], Y)


@pytest.mark.slow
def test_equal_rows_of_many_columns():
    """Nothing of scikit-learn's warns of a variance of zero; warnings are errors here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 of 1 networks predict validation rows no better")
        for X in (np.ones((N, 200)), sparse.csr_array(np.ones(SHAPE))):
            reg = make(NONARegressor).fit(X, Y)
            np.testing.assert_allclose(reg.predict(X[:1]), Y.mean(), rtol=0.1)


@pytest.mark.slow
def test_repeatable_and_without_a_trace_in_the_global_generator():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (make(NONARegressor).fit(WIDE, Y).predict(WIDE) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.slow
def test_a_fit_of_dense_rows_and_then_of_sparse_ones():
    reg = make(NONARegressor).fit(WIDE.toarray(), Y).fit(WIDE, Y)
    again = make(NONARegressor).fit(WIDE, Y)
    np.testing.assert_array_equal(reg.predict(WIDE), again.predict(WIDE))


def test_only_a_table_is_sparse():
    for kind in KINDS:
        assert sklearn.utils.get_tags(kind()).input_tags.sparse
    assert not sklearn.utils.get_tags(NONARegressor(feature_extractor=int)).input_tags.sparse


# -- bad input -----------------------------------------------------------------------------


@EACH
@BOTH_WIDTHS
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_not_finite(kind, X, value, untrained):
    wrong = X.tolil()
    wrong[3, 5] = value
    with pytest.raises(ValueError, match=f"finite numbers, got {value} in row 3 of column 5"):
        make(kind).fit(wrong, targets(kind))


@BOTH_WIDTHS
def test_queries_that_are_not_finite(X):
    reg = make(NONARegressor).fit(X, Y)
    wrong = X.tolil()
    wrong[7, 0] = np.nan
    with pytest.raises(ValueError, match=r"finite numbers, got nan in row 7 of column 0"):
        reg.predict(wrong)
    with pytest.raises(ValueError, match=f"X has 3 features, but .* is expecting {X.shape[1]}"):
        reg.predict(X[:, :3])


@pytest.mark.slow
def test_dense_queries_of_a_wide_fit_are_finite_numbers():
    reg = make(NONARegressor).fit(WIDE, Y)
    query = WIDE[:2].toarray()
    query[1, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        reg.predict(query)
    with pytest.raises(ValueError, match="could not convert string to float: 'a'"):
        reg.predict(np.full((1, WIDE.shape[1]), "a"))


@BOTH_WIDTHS
@pytest.mark.parametrize("chosen", [[0], [True] * 12, []])
def test_columns_of_a_sparse_matrix_are_no_categories(X, chosen, untrained):
    with pytest.raises(ValueError, match=r"categorical_features must be 'from_dtype' or None"):
        make(NONARegressor, table_encoder=TableEncoder(categorical_features=chosen)).fit(X, Y)


def test_a_fit_to_categories_has_no_sparse_queries():
    frame = pd.DataFrame({"kind": ["a", "b"] * 30, "size": Y})
    reg = make(NONARegressor).fit(frame, Y)
    query = sparse.csr_array(np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"X must be a DataFrame as in fit.*'kind'"):
        reg.predict(query)


def test_a_column_of_times():
    with pytest.raises(ValueError, match="times='sold' needs X to be a DataFrame"):
        make(NONARegressor).fit(NARROW, Y, times="sold")
    frame = pd.DataFrame({"sold": np.arange(N) * 1.0, "size": Y})
    reg = make(NONARegressor).fit(frame, Y, times="sold")
    queries = frame[30:32].to_numpy()
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        found = reg.predict(sparse.csr_array(queries))
    np.testing.assert_array_equal(found, reg.predict(frame[30:32]))


def test_too_large_for_float32(monkeypatch):
    reg = make(SoftStepKNeighborsRegressor).fit(WIDE, Y)
    monkeypatch.setattr(loop, "train_network", None)  # no training may start
    with pytest.raises(ValueError, match="too large for float32"):
        make(SoftStepKNeighborsRegressor).fit(1e200 * WIDE, Y)
    with pytest.raises(ValueError, match="too large for float32"):
        reg.predict(1e200 * WIDE)


def test_a_sparse_matrix_has_no_columns_to_explain_by():
    reg = make(NONARegressor).fit(WIDE, Y)
    assert len(reg.explain(WIDE[:2], 3)) > 0
    with pytest.raises(TypeError, match=r"features must be dense .* see unwrap"):
        reg.explain(WIDE[:2], 3, features=WIDE)
    with pytest.raises(TypeError, match="X must be dense where features are given"):
        reg.explain(WIDE[:2], 3, features=WIDE.toarray())


@pytest.mark.slow
def test_components_have_no_importances():
    knn = make(SoftStepKNeighborsRegressor)
    assert len(knn.fit(NARROW, Y).feature_weights_) == 12
    with pytest.raises(AttributeError, match="feature_weights_ needs a fit to a dense table"):
        _ = knn.fit(WIDE, Y).feature_weights_


def test_no_graph_of_components(tmp_path):
    reg = make(NONARegressor).fit(WIDE, Y)
    with pytest.raises(ValueError, match=r"X must be dense in fit.* a TruncatedSVD"):
        export_onnx(reg, tmp_path / "graph.onnx")
