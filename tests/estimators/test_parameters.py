"""Parameters that are objects: the options of training, the table encoder and the step."""

import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import GridSearchCV

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    TrainingOptions,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*networks predict validation rows no better")

N = 60
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {"area": RNG.uniform(20, 90, N), "district": RNG.choice([*"abcdef"], N)},
    index=[f"flat {i}" for i in range(N)],
)
Y = 5 * X["area"] + 40 * (X["district"] < "c") + RNG.normal(size=N)
NEW = X[:7].assign(area=X["area"] + 1).rename("new {}".format)

EACH = pytest.mark.parametrize(
    "kind",
    [NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier],
)


def quick(kind, **params):
    networks = {"n_estimators": 1, "hidden_layer_sizes": (8,)}
    options = networks if kind in (NONARegressor, NONAClassifier) else {}
    return kind(**{"max_iter": 2, "random_state": 0} | options | params)


def targets(kind):
    return np.where(Y.median() < Y, "dear", "cheap") if is_classifier(kind()) else Y.to_numpy()


def answers(estimator):
    """Probabilities, or predictions and their spread."""
    if is_classifier(estimator):
        return estimator.predict_proba(NEW)
    return np.stack(estimator.predict(NEW, return_std=True))


@pytest.fixture
def no_training(monkeypatch):
    """Training fails, so that an error that is raised came before it."""
    monkeypatch.setattr("inner.estimators.fitting.train_networks", None)


# -- objects and their nested names ---------------------------------------------------------------


@EACH
def test_nested_names_make_the_objects_where_they_are_none(kind):
    estimator = kind()
    assert estimator.training is estimator.table_encoder is None
    assert not [name for name in estimator.get_params() if "__" in name]
    estimator.set_params(training__pool_size=512, table_encoder__max_categories=8)
    assert estimator.training.get_params() == TrainingOptions(pool_size=512).get_params()
    assert estimator.table_encoder.get_params() == TableEncoder(max_categories=8).get_params()
    estimator.set_params(training__batch_size=64)
    both = TrainingOptions(pool_size=512, batch_size=64).get_params()
    assert estimator.training.get_params() == both
    nested = {f"training__{name}": value for name, value in both.items()}
    assert estimator.get_params().items() >= nested.items()
    estimator.set_params(training=TrainingOptions(max_time=9), training__batch_size=32)
    given = TrainingOptions(max_time=9, batch_size=32)
    assert estimator.training.get_params() == given.get_params()
    assert kind().training is None


def test_an_unknown_nested_name_is_an_error():
    with pytest.raises(ValueError, match="Invalid parameter 'patience' for estimator Training"):
        NONARegressor().set_params(training__patience=3)


@EACH
def test_a_step_has_nested_names(kind):
    """A name stands for a step on the estimator's scale; None for "s1"."""
    on = "rank" if "SoftStep" in kind.__name__ else "similarity"
    for given in (None, "s1"):
        estimator = kind(softstep=given).set_params(softstep__params="pointwise")
        assert repr(estimator.softstep) == repr(SoftStep("s1", "pointwise", on))
    estimator.set_params(softstep__step="s2", softstep__params="global")
    assert estimator.get_params()["softstep__step"] == "s2"
    copied = clone(estimator)
    assert repr(copied.softstep) == repr(SoftStep("s2", on=on))
    assert copied.softstep is not estimator.softstep
    step = SoftStep("s1", "pointwise", embedding_dim=300)
    assert repr(clone(kind(softstep=step)).softstep) == repr(step)


@EACH
def test_a_search_over_the_step(kind):
    search = GridSearchCV(quick(kind, similarity="l2"), {"softstep__step": ["s1", "s2"]}, cv=2)
    search.set_params(error_score="raise").fit(X, targets(kind))
    assert search.best_estimator_.network_.head.step.step == search.best_params_["softstep__step"]


def test_a_loss_by_name_has_nested_names():
    assert NONAClassifier(loss="as_softmax").set_params(loss__margin=0.3).loss.margin == 0.3


@EACH
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"weighting__learn_temperature": False}, "weighting__.* needs an object .*, got 'soft"),
        ({"trend": "kernel", "trend__alpha": 2}, "trend__alpha needs an object .*, got 'kernel'"),
        ({"max_iter": 9, "softstep__kind": "s2"}, r"Invalid parameter 'kind' for SoftStep\('s1'"),
        ({"softstep": "s9", "softstep__on": "rank"}, "step must be one of .*, got 's9'"),
        ({"softstep__step": "s9"}, "step must be one of .*, got 's9'"),
        ({"softstep__embedding_dim": 0}, "embedding_dim must be a positive integer, got 0"),
        ({"max_iter": 9, "training__foo": 1}, "Invalid parameter 'foo' for estimator Training"),
        ({"table_encoder__max_categories": 9, "training__foo": 1}, "Invalid parameter 'foo'"),
        ({"max_iter": 9, "patience": 1}, "Invalid parameter 'patience'"),
    ],
)
@pytest.mark.parametrize("are_objects", [False, True])
def test_set_params_that_fails_changes_nothing(kind, params, message, are_objects):
    step = SoftStep("s1", "pointwise", embedding_dim=2)
    objects = {"table_encoder": TableEncoder(), "training": TrainingOptions(), "softstep": step}
    estimator = kind(**objects if are_objects else {"softstep": "s1"})
    before, weights = estimator.get_params(), step.linear.weight.clone()
    with pytest.raises(ValueError, match=message):
        estimator.set_params(**params)
    after = estimator.get_params()
    assert after.keys() == before.keys()
    assert all(after[name] is value for name, value in before.items())
    assert torch.equal(step.linear.weight, weights)


def test_a_clone_has_objects_of_its_own():
    estimator = NONARegressor(training=TrainingOptions(), table_encoder=TableEncoder())
    clone(estimator).set_params(training__max_time=1, table_encoder__max_categories=2)
    assert estimator.training.max_time is None
    assert estimator.table_encoder.max_categories == 64


def test_options_of_training_are_keywords():
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        TrainingOptions(64)


@EACH
def test_none_is_the_default_object(kind):
    given = {"training": TrainingOptions(), "table_encoder": TableEncoder()}
    fits = [quick(kind, **params).fit(X, targets(kind)) for params in ({}, given)]
    np.testing.assert_array_equal(*map(answers, fits))


@pytest.mark.parametrize("kind", [SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier])
def test_automatic_options_of_soft_step(kind):
    options = TrainingOptions(
        neighbor_pool="dataset",
        batch_size=256,
        pool_size=1024,
        learning_rate_init=0.03,
        n_iter_no_change=10,
    )
    fits = [
        quick(kind, max_iter=15, similarity="l2", training=each).fit(X, targets(kind))
        for each in (None, options)
    ]
    np.testing.assert_array_equal(*map(answers, fits))


@pytest.mark.parametrize("kind", [SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier])
def test_soft_step_waits_for_ten_epochs_beside_a_trend(kind):
    """Whatever the losses are, ten epochs without gain end at least seven later than three."""
    waits = [None, TrainingOptions(n_iter_no_change=10), TrainingOptions(n_iter_no_change=3)]
    fits = [quick(kind, max_iter=500, training=each).fit(X, targets(kind)) for each in waits]
    assert [fit.trend_ for fit in fits] == ["kernel"] * 3
    assert [fit.history_[-1]["stopped"] for fit in fits] == ["no change"] * 3
    default, ten, three = (fit.n_iter_ for fit in fits)
    assert default == ten >= three + 7


@EACH
def test_levels_are_rare_by_the_given_encoder(kind):
    table = pd.DataFrame({"level": ["a"] * 9 + ["b"] * 6 + ["c"] * 5, "number": np.arange(20.0)})
    encoder = TableEncoder(min_frequency=0.4)
    fitted = quick(kind, table_encoder=encoder).fit(table, targets(kind)[:20])
    names = ["number", "level_a", "level_infrequent_sklearn"]
    assert sorted(fitted.features_.get_feature_names_out()) == sorted(names)


@EACH
def test_a_fit_leaves_the_objects_as_they_were(kind):
    step = SoftStep("s1", on="similarity")
    params = {
        "training": TrainingOptions(batch_size=16),
        "table_encoder": TableEncoder(["district"], max_categories=3),
        "softstep": step,
    }
    before = pickle.dumps(params)
    estimator = quick(kind, similarity="l2", **params).fit(X, targets(kind))
    assert pickle.dumps(params) == before
    assert estimator.softstep is step
    assert not torch.equal(estimator.network_.head.step.logits, step.logits)
    assert estimator.features_.get_params() == params["table_encoder"].get_params()
    assert estimator.features_ is not params["table_encoder"]


@EACH
def test_half_life_is_of_the_estimator(kind):
    times = np.arange(N)
    faded = quick(kind, half_life=5.0, n_neighbors=None).fit(X, targets(kind), times=times)
    even = clone(faded).set_params(half_life=None).fit(X, targets(kind), times=times)
    prior = faded.bank_.neighbors.log_prior
    np.testing.assert_allclose(prior.diff(), np.log(2) / 5, rtol=1e-4)
    assert even.bank_.neighbors.log_prior is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'half_life'"):
        even.fit(X, targets(kind), times=times, half_life=5.0)


@pytest.mark.parametrize("kind", [NONARegressor, SoftStepKNeighborsClassifier])
def test_a_search_over_nested_parameters(kind):
    """Each candidate is what the constructor makes of its parameters."""
    y, times = targets(kind), np.arange(N)
    grid = {
        "half_life": [None, 5.0],
        "table_encoder__max_categories": [2, 6],
        "training__batch_size": [4, 16],
    }
    params = {"trend": None, "hidden_layer_sizes": (8,)}
    estimator, train, test = quick(kind, **params), np.arange(40), np.arange(40, N)
    scoring = "neg_log_loss" if is_classifier(estimator) else "r2"
    search = GridSearchCV(
        estimator, grid, scoring=scoring, cv=[(train, test)], error_score="raise"
    ).fit(X, y, times=times)
    scores = search.cv_results_["mean_test_score"].reshape(2, 2, 2)
    for axis in range(3):  # each parameter has an effect
        assert (np.diff(scores, axis=axis) != 0).any()
    for (i, j, k), score in np.ndenumerate(scores):
        half_life, max_categories, batch_size = (
            values[at] for values, at in zip(grid.values(), (i, j, k), strict=True)
        )
        one = quick(
            kind,
            half_life=half_life,
            table_encoder=TableEncoder(max_categories=max_categories),
            training=TrainingOptions(batch_size=batch_size),
            **params,
        ).fit(X.iloc[train], y[train], times=times[train])
        assert search.scorer_(one, X.iloc[test], y[test]) == pytest.approx(score)
    best = search.best_estimator_
    assert {name: best.get_params()[name] for name in grid} == search.best_params_
    assert estimator.training is None


# -- invalid values -------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_training")
@EACH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training__batch_size", 1),
        ("training__batch_size", 2**70),
        ("training__batch_size", "all"),
        ("training__neighbor_pool", "all"),
        ("training__pool_size", 0),
        ("training__learning_rate_init", 0),
        ("training__weight_decay", -1.0),
        ("training__n_iter_no_change", 0),
        ("training__max_time", 10**400),
        ("training__callbacks", "x"),
        *(
            (f"training__{name}", True)
            for name in (
                *("pool_size", "learning_rate_init", "weight_decay", "n_iter_no_change"),
                "max_time",
            )
        ),
        ("table_encoder__max_categories", True),
        ("table_encoder__min_frequency", True),
        ("max_iter", True),
        ("n_neighbors", True),
        ("embedding_dim", True),
        ("table_encoder__categorical_features", "all"),
        ("table_encoder__text_features", 2.5),
        ("table_encoder__max_categories", 0),
        ("table_encoder__min_frequency", 1.5),
        ("training", {"pool_size": 33}),
        ("training", TrainingOptions),
        ("table_encoder", "from_dtype"),
        ("half_life", "week"),
        ("softstep", "s3"),
        ("softstep", {"step": "s1"}),
        ("softstep", SoftStep),
        ("validation_fraction", True),
        ("validation_fraction", "yes"),
    ],
)
def test_invalid_values_are_named_before_training(kind, name, value):
    estimator = quick(kind).set_params(**{name: value})
    message = f"The '{name.split('__')[-1]}' parameter of .* must be"
    with pytest.raises(ValueError, match=message) as error:
        estimator.fit(X, targets(kind))
    assert f"Got {value!r} instead" in str(error.value)


class Doubled(TableEncoder):
    def transform(self, X):
        return 2 * super().transform(X)


class Named(TableEncoder):
    """An encoder with a method more."""

    def describe(self):
        return "an encoder"


@pytest.mark.usefixtures("no_training")
@EACH
def test_an_encoder_whose_methods_are_not_called_is_refused(kind):
    estimator = quick(kind, table_encoder=Doubled())
    with pytest.raises(ValueError, match=r"table_encoder must .* Doubled with its own transform"):
        estimator.fit(X, targets(kind))


def test_an_encoder_with_a_further_method_is_accepted():
    estimator = quick(NONARegressor, table_encoder=Named(max_categories=3)).fit(X, Y)
    assert estimator.features_.describe() == "an encoder"


# -- steps ----------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("step", ["s1", "s2"])
def test_a_name_of_a_step_stands_for_an_object(kind, step):
    """On ranks in SoftStep k-NN, on similarities in NONA."""
    on = "rank" if "SoftStep" in kind.__name__ else "similarity"
    fits = [
        quick(kind, similarity="l2", softstep=each).fit(X, targets(kind))
        for each in (step, SoftStep(step, on=on), SoftStep(step, on=on, embedding_dim=77))
    ]
    found = [answers(each) for each in fits]
    np.testing.assert_array_equal(found[1:], found[:-1])
    assert fits[0].network_.head.step.on == on


@EACH
def test_a_pointwise_step_gets_the_columns_of_the_embedding(kind):
    for dim in (None, 77):
        step = SoftStep("s1", "pointwise", embedding_dim=dim)
        estimator = quick(kind, similarity="l2", softstep=step).fit(X, targets(kind))
        layer = estimator.network_.head.step.linear
        assert layer.in_features == estimator.transform(NEW).shape[1]
    with pytest.raises(ValueError, match="embedding_dim must be given with params='pointwise'"):
        SoftStep("s1", "pointwise")(torch.zeros(1, 3), torch.zeros(1, 2))


# -- neighbourhoods and attributions --------------------------------------------------------------


@EACH
@pytest.mark.parametrize("params", [{}, {"similarity": "l2", "softstep": "s2"}], ids=str)
def test_a_neighborhood_is_that_of_the_weights_and_distances(kind, params):
    estimator = quick(kind, **params).fit(X, targets(kind))
    has_step = estimator.network_.head.step is not None
    for queries, names in (
        (NEW, [*NEW.index]),
        (estimator.embed(NEW), [*NEW.index]),
        (NEW.reset_index(drop=True), [*range(7)]),
        (None, [*X.index]),
    ):
        found = estimator.neighborhood(queries)
        weights = estimator.neighbor_weights(queries).toarray()
        columns = ["query", "distance", "applicability", "n_nonzero_weights"]
        columns += ["effective_n_neighbors"] + ["soft_n_neighbors"] * has_step
        assert [*found] == columns
        assert found["query"].tolist() == names
        nearest = estimator.kneighbors(queries, 1)[0][:, 0]
        np.testing.assert_array_equal(found["distance"], nearest)
        np.testing.assert_array_equal(found["n_nonzero_weights"], (weights > 0).sum(axis=1))
        sizes = 1 / (weights**2).sum(axis=1)
        np.testing.assert_allclose(found["effective_n_neighbors"], sizes, rtol=1e-5)
        if has_step:
            assert found["soft_n_neighbors"].between(1, N).all()


@EACH
@pytest.mark.parametrize("of", ["prices", None, 3])
def test_what_is_attributed_is_one_of_three(kind, of):
    estimator = quick(kind).fit(X, targets(kind))
    message = r"of must be one of \['adjustments', 'distances', 'predictions'\], got "
    with pytest.raises(ValueError, match=f"{message}{of!r}"):
        estimator.attribute(NEW, X, of=of)


# -- how much there is to know --------------------------------------------------------------------

#: Methods that scikit-learn's users know.
USUAL = {
    *("fit", "predict", "score", "fit_transform", "get_feature_names_out", "set_output"),
    *dir(BaseEstimator),
}


@EACH
def test_an_estimator_has_few_parameters_and_methods(kind):
    assert len(kind().get_params(deep=False)) <= 24
    own = {
        name
        for name, _ in inspect.getmembers(kind, callable)
        if not name.startswith("_") and name not in USUAL
    }
    assert len({name for name in own if not name.endswith("_request")}) <= 18
