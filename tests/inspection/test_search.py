"""What to search for: every draw is valid, and searches take it as it is."""

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import (
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from nona_sklearn import (
    FeatureExtractor,
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    param_distributions,
    param_grid,
)

QUICK = {"max_iter": 1, "random_state": 0}
ESTIMATORS = {
    "nona": NONARegressor(n_estimators=1, **QUICK),
    "nona classes": NONAClassifier(n_estimators=1, **QUICK),
    "nona extractor": NONARegressor(FeatureExtractor(nn.Identity()), n_estimators=1, **QUICK),
    "softstep": SoftStepKNeighborsRegressor(**QUICK),
    "softstep learned": SoftStepKNeighborsRegressor(hidden_layer_sizes=(8,), **QUICK),
    "softstep classes": SoftStepKNeighborsClassifier(**QUICK),
}
ON_ALL = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


@pytest.fixture(scope="module")
def data():
    X, y = load_diabetes(return_X_y=True)
    return X[:40].astype(np.float32), (y[:40] > 140).astype(int)


def draws(estimator, n=40):
    """Parameters of a random search, and all of the grid."""
    distributions = param_distributions(estimator)
    return [
        *ParameterSampler(distributions, n, random_state=0),
        *ParameterGrid(param_grid(estimator)),
    ]


@ON_ALL
def test_every_draw_is_of_its_parameters_and_valid(estimator):
    for params in draws(estimator):
        assert params.keys() <= estimator.get_params().keys()
        clone(estimator).set_params(**params)._validate_params()


@pytest.mark.slow
@ON_ALL
@pytest.mark.parametrize("give", [param_distributions, param_grid])
def test_every_value_of_a_list_can_be_fitted(estimator, give, data):
    """Each with others that are drawn: what cannot be combined would fail here."""
    lists = {name: v for name, v in give(estimator).items() if isinstance(v, list)}
    n_values = max(len(values) for values in lists.values())
    rng = np.random.default_rng(0)
    orders = {name: rng.permutation(len(values)) for name, values in lists.items()}
    for i in range(n_values):
        params = {name: lists[name][order[i % len(order)]] for name, order in orders.items()}
        clone(estimator).set_params(**params).fit(*data)


def what_auto_means(estimator):
    return getattr(estimator._architecture(), "automatic", {})


@ON_ALL
def test_what_is_the_default_may_come_out(estimator):
    """Else a search could only leave a good default. Of 'auto', what it stands for."""
    defaults = type(estimator)().get_params(deep=False)
    defaults["feature_extractor__learning_rate"] = FeatureExtractor(nn.Identity).learning_rate
    for name, values in param_distributions(estimator).items():
        default = defaults[name]
        if default == "auto":
            default = what_auto_means(estimator).get(name, default)
        if isinstance(values, list):
            assert default in values, name
        else:
            low, high = values.support()
            assert low <= default <= high, name


def test_the_largest_learning_rate_still_learns():
    """Twice as large, and ten epochs are worse than a constant."""
    X, y = load_diabetes(return_X_y=True)
    _, largest = param_distributions(ESTIMATORS["nona"])["learning_rate_init"].support()
    reg = NONARegressor(n_estimators=1, max_iter=10, learning_rate_init=largest, random_state=0)
    assert reg.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0


@pytest.mark.parametrize(
    ("kind", "name", "other"),
    [
        ("nona", "numerical_embedding", "feature_extractor__learning_rate"),
        ("nona extractor", "feature_extractor__learning_rate", "numerical_embedding"),
        ("softstep", "learn_feature_weights", "embedding_dim"),
        ("softstep learned", "embedding_dim", "learn_feature_weights"),
    ],
)
def test_what_moves_accuracy_depends_on_the_space(kind, name, other):
    drawn = param_distributions(ESTIMATORS[kind])
    assert name in drawn
    assert other not in drawn
    assert other not in param_grid(ESTIMATORS[kind])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("nona extractor", "feature_extractor__learning_rate"),
        ("softstep learned", "embedding_dim"),
    ],
)
def test_grids_of_learned_spaces_turn_what_makes_them(kind, name):
    assert len(param_grid(ESTIMATORS[kind])[name]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("search", [RandomizedSearchCV, HalvingRandomSearchCV])
def test_random_searches_take_them(search, data):
    knn = ESTIMATORS["softstep"]
    options = {"n_iter": 3} if search is RandomizedSearchCV else {"n_candidates": 3}
    fitted = search(
        knn, param_distributions(knn), cv=2, random_state=0, error_score="raise", **options
    ).fit(*data)
    assert fitted.best_params_.keys() == param_distributions(knn).keys()


@pytest.mark.parametrize("wrap", [make_pipeline, lambda reg: make_pipeline(StandardScaler(), reg)])
@pytest.mark.parametrize("give", [param_distributions, param_grid])
def test_what_holds_an_estimator_calls_its_parameters_by_its_own_names(give, wrap):
    reg = ESTIMATORS["nona"]
    inner = give(reg)
    model = TransformedTargetRegressor(wrap(reg))
    ours = give(model)
    assert [*ours] == [f"regressor__nonaregressor__{name}" for name in inner]
    assert ours.keys() <= model.get_params().keys()


def test_each_of_several_is_searched():
    grid = param_grid(make_pipeline(ESTIMATORS["nona"], ESTIMATORS["softstep"]))
    firsts = {name.partition("__")[0] for name in grid}
    assert firsts == {"nonaregressor", "softstepkneighborsregressor"}


@pytest.mark.parametrize("give", [param_distributions, param_grid])
@pytest.mark.parametrize("other", [LinearRegression(), NONARegressor, None, "nona"], ids=str)
def test_others_are_refused(give, other):
    with pytest.raises(TypeError, match=r"estimator must be one of nona_sklearn.*got "):
        give(other)


def test_what_is_given_is_the_callers():
    reg = ESTIMATORS["nona"]
    given = param_distributions(reg)
    given["embedding_dim"].clear()
    given["learning_rate_init"] = loguniform(1, 2)
    assert param_distributions(reg)["embedding_dim"]


@pytest.mark.slow
def test_halving_by_epochs_starts_each_rung_anew(data):
    """As scikit-learn's search does: a rung's fit runs all of its epochs from the first."""
    X, y = data
    epochs = []

    class Counted(NONARegressor):
        def fit(self, X, y, **params):
            super().fit(X, y, **params)
            epochs.append(self.n_iter_)
            return self

    Counted.__init__ = NONARegressor.__init__  # for get_params
    search = HalvingGridSearchCV(
        Counted(n_estimators=1, random_state=0, warm_start=True),
        {"embedding_dim": [2, 4, 8, 16]},
        resource="max_iter",
        min_resources=1,
        max_resources=4,
        factor=2,
        cv=2,
        refit=False,
    ).fit(X, y)
    assert search.n_resources_ == [1, 2, 4]
    assert search.n_candidates_ == [4, 2, 1]
    assert epochs == [1] * 8 + [2] * 4 + [4] * 2
