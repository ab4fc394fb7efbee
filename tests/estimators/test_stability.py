"""How often the heaviest neighbours are named again, by refits or by other networks."""

import copy

import numpy as np
import pytest
import torch
from inner.estimators import _refits
from inner.trend import LeftOut, weigh_features
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import NONAClassifier, NONARegressor, SoftStepKNeighborsRegressor, unwrap

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * RNG.normal(size=120)
NEW = RNG.normal(size=(20, 4))
GROUPS = np.arange(120) // 4
QUICK = {"hidden_layer_sizes": (8,), "max_iter": 2, "n_estimators": 1, "random_state": 0}


def nona(kind=NONARegressor, **params):
    return kind(**(QUICK | params))


@pytest.fixture(scope="module")
def fitted():
    return nona().fit(X, Y)


@pytest.fixture(scope="module")
def several():
    return nona(similarity="l2", n_estimators=3).fit(X, Y)


# -- refits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [NEW, None])
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_refits_are_those_by_hand(queries, groups):
    """Weights by the kernel of the rows, neighbours by scikit-learn."""
    reg = nona().fit(X, Y, groups=groups)
    found = reg.neighbor_stability(queries, n_refits=4, subsample=0.7, n_neighbors=5)
    rows = reg.bank_.inputs.numpy().astype(float)
    query_rows = (
        rows if queries is None else reg.embed(queries).inputs.encoded.numpy().astype(float)
    )
    y = ((Y - Y.mean()) / Y.std())[:, None]
    n_refits, n_named = np.zeros((2, len(query_rows), len(X)))
    splitter = ShuffleSplit if groups is None else GroupShuffleSplit
    for drawn, _ in splitter(4, train_size=0.7, random_state=0).split(X, groups=groups):
        some = np.sort(drawn)
        own = LeftOut(np.ones(len(some)), None if groups is None else groups[some])
        weights = weigh_features(rows[some], y[some], own).mean_weights
        searched = NearestNeighbors(n_neighbors=6, metric="manhattan").fit(rows[some] * weights)
        named = some[searched.kneighbors(query_rows * weights, return_distance=False)]
        for query, places in enumerate(named):
            others = [i for i in places if queries is not None or i != query]
            n_named[query, others[:5]] += 1
        n_refits[:, some] += 1
    lines = found["query"], found["neighbor"]
    assert (
        found["neighbor"].tolist()
        == reg.explain(queries, 5).query("neighbor != 'others'")["neighbor"].tolist()
    )
    np.testing.assert_array_equal(found["n_refits"], n_refits[lines])
    with np.errstate(invalid="ignore"):
        expected = (n_named / n_refits)[lines]
    np.testing.assert_allclose(found["selection_frequency"], expected)
    assert 0.1 < np.nanmean(expected) < 1


@pytest.mark.parametrize(
    ("kind", "half_life", "options"),
    [
        (NONARegressor, None, {}),
        (NONARegressor, None, {"sample_weight": RNG.uniform(0.5, 2, 120), "groups": GROUPS}),
        (NONARegressor, 50.0, {"times": np.arange(120.0)}),
        (NONAClassifier, None, {"sample_weight": RNG.uniform(0.5, 2, 120)}),
    ],
)
def test_a_refit_to_all_rows_finds_what_the_fit_finds(kind, half_life, options):
    reg = nona(kind, similarity="features", half_life=half_life).fit(
        X, np.where(Y > 0, "high", "low") if kind is NONAClassifier else Y, **options
    )
    evaluation = reg.bank_.evaluate(reg.network_.head)
    ((_, refit),) = _refits(reg, evaluation, reg.bank_.inputs, [np.arange(len(X))])
    np.testing.assert_array_equal(refit.neighbors.embeddings, reg.bank_.embeddings)
    found, expected = (each.heaviest(5)[:2] for each in (refit, evaluation))
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)


def test_a_refit_leaves_out_the_groups_of_the_fit():
    """Rows of a group have one target and nearly the same features, and tell of each other.

    So it depends on the groups after how many rounds the weights of the features are final.
    """
    random = np.random.default_rng(3)
    rows = random.normal(size=(30, 8))[GROUPS] + 0.05 * random.normal(size=(120, 8))
    y = 0.5 * rows[:, 0] + random.normal(size=30)[GROUPS]
    reg = nona(similarity="features").fit(rows, y, groups=GROUPS)
    evaluation = reg.bank_.evaluate(reg.network_.head)
    ((_, refit),) = _refits(reg, evaluation, reg.bank_.inputs, [np.arange(120)])
    np.testing.assert_array_equal(refit.neighbors.embeddings, reg.bank_.embeddings)
    alone = nona(similarity="features").fit(rows, y)
    found, other = (each.transform(rows[:1]) for each in (reg, alone))
    assert abs(other / found - 1).max() > 0.05


def test_rows_without_weight_are_not_named():
    """Three rows have weight, so that of twelve the others are none of the heaviest."""
    reg = nona(n_neighbors=3).fit(X, Y)
    few, many = (reg.neighbor_stability(NEW, n_neighbors=k, subsample=0.6) for k in (3, 12))
    assert many.equals(few)
    assert (few["selection_frequency"] < 1).any()


def test_rows_on_a_line_are_named_by_each_refit_that_contains_them():
    """With one feature, whatever its weight, only rows that are nearer can displace a row."""
    reg = nona().fit(X[:, :1], Y)
    found = reg.neighbor_stability(None, subsample=0.5, n_neighbors=8)
    assert len(found) == 8 * len(X)
    known = found[found["n_refits"] > 0]
    assert (known["selection_frequency"] == 1).all()
    assert 0.4 < found["n_refits"].mean() / 10 < 0.6


def test_of_equal_rows_chance_names_some():
    """Of 40 equal rows a refit has about 20, of which it names 5 at random: one in four."""
    rows = np.r_[np.zeros((40, 1)), X[:60, :1]]
    reg = nona().fit(rows, np.r_[RNG.normal(size=40), Y[:60]])
    found = reg.neighbor_stability([[0.0]], n_refits=40, subsample=0.5, n_neighbors=5)
    assert found["neighbor"].max() < 40
    assert abs(found["selection_frequency"].mean() - 0.25) < 0.1


def test_groups_are_drawn_as_a_whole():
    reg = nona().fit(X, Y, groups=GROUPS)
    found = reg.neighbor_stability(None, n_neighbors=8)
    of_group = found.groupby(GROUPS[found["neighbor"].astype(int)])["n_refits"]
    assert (of_group.nunique() == 1).all()
    assert of_group.first().sum() == 10 * 27  # of 30 groups


def test_neighbours_of_rows_with_times_are_earlier():
    reg = nona(similarity="features").fit(X, Y, times=np.arange(120.0))
    found = reg.neighbor_stability(None, n_neighbors=3)
    assert (found["neighbor"] < found["query"]).all()
    assert found["selection_frequency"].mean() > 0.2


def test_the_bank_is_taken_as_it_is(fitted):
    reg = copy.deepcopy(fitted).remove_neighbors(ids=np.arange(60))
    reg.add_neighbors(NEW[:1], [0.0])
    found = reg.neighbor_stability(NEW[:1], n_neighbors=5)
    assert found["neighbor"].min() >= 60
    assert found["neighbor"][0] == 120


def test_a_refit_that_cannot_tell_rows_apart_names_none():
    """One row alone differs from the others, and it is not in each subsample."""
    rows = np.zeros((40, 1))
    reg = nona(similarity="features").fit(X[:40, :1], Y[:40])
    evaluation = reg.bank_.evaluate(reg.network_.head)
    reg.bank_.inputs[:] = torch.from_numpy(rows)
    ((_, refit),) = _refits(reg, evaluation, reg.bank_.inputs, [np.arange(20)])
    assert refit is None


def test_the_seed_decides_and_global_generators_stay(fitted):
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    one, again, other = (
        fitted.neighbor_stability(NEW, subsample=0.6, random_state=seed) for seed in (0, 0, 1)
    )
    assert one.equals(again)
    assert not one["n_refits"].equals(other["n_refits"])
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


def test_progress_is_shown_on_request(fitted, capsys):
    fitted.neighbor_stability(NEW[:1], n_refits=2)
    assert capsys.readouterr().err == ""
    copy.deepcopy(fitted).set_params(verbose=1).neighbor_stability(NEW[:1], n_refits=2)
    assert "refits: 100%" in capsys.readouterr().err


def test_a_pipeline_s_queries_are_transformed(fitted):
    model = make_pipeline(StandardScaler(), nona()).fit(X, Y)
    own = model[-1].neighbor_stability(model[0].transform(NEW), n_refits=3, n_neighbors=4)
    assert unwrap(model).neighbor_stability(NEW, n_refits=3, n_neighbors=4).equals(own)


# -- networks -----------------------------------------------------------------------------------


def test_networks_are_compared_in_a_learned_space(several):
    found = several.neighbor_stability(NEW, n_neighbors=5)
    heads = several.network_.head.heads
    z, query = (
        torch.chunk(each, 3, dim=1)
        for each in (several.bank_.embeddings, several.embed(NEW).embeddings)
    )
    n_named = np.zeros((len(NEW), len(X)))
    for head, own, query_rows in zip(heads, z, query, strict=True):
        weights = head.neighbor_weights(query_rows, own).numpy()
        for each, of_query in zip(n_named, weights, strict=True):
            heaviest = np.argsort(-of_query)[:5]
            each[heaviest[of_query[heaviest] > 0]] += 1
    assert (found["n_refits"] == 3).all()
    expected = n_named[found["query"], found["neighbor"]] / 3
    np.testing.assert_allclose(found["selection_frequency"], expected)


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_refits": 1}, "n_refits must be an integer of at least 2, got 1"),
        ({"n_refits": 2.5}, "n_refits must be an integer of at least 2, got 2.5"),
        ({"subsample": 0}, "subsample must be between 0 and 1, got 0"),
        ({"subsample": 1.0}, r"subsample must be between 0 and 1, got 1\.0"),
        ({"subsample": 0.01}, r"subsample must leave at least 2 of the 120 rows .* got 0\.01"),
        ({"n_neighbors": 0}, "n_neighbors must be an integer from 1 to 120, got 0"),
        (
            {"n_neighbors": 60, "subsample": 0.5},
            r"less than the 60 rows .* subsample=0\.5 chooses, got 60",
        ),
        ({"random_state": "x"}, "'x' cannot be used to seed"),
    ],
)
def test_invalid_parameters_are_named(fitted, options, message):
    with pytest.raises(ValueError, match=message):
        fitted.neighbor_stability(NEW, **options)


def test_a_row_without_itself_has_one_choice_less(fitted):
    with pytest.raises(ValueError, match="n_neighbors must be less than the 59 rows"):
        fitted.neighbor_stability(None, n_neighbors=59, subsample=0.5)


def test_groups_that_are_too_few_are_counted():
    reg = nona().fit(X, Y, groups=np.arange(120) % 3)
    with pytest.raises(ValueError, match="at least 2 of the 3 groups"):
        reg.neighbor_stability(NEW, subsample=0.5)


@pytest.mark.parametrize(
    "reg",
    [
        nona(similarity="l2"),
        SoftStepKNeighborsRegressor(similarity="log_l2", max_iter=1, random_state=0),
    ],
)
def test_one_network_of_a_learned_space_is_refused(reg):
    message = f"needs similarity='features' .* got one network of {type(reg).__name__}"
    with pytest.raises(ValueError, match=message):
        reg.fit(X, Y).neighbor_stability(NEW)


def test_other_targets_are_refused(fitted):
    reg = copy.deepcopy(fitted).set_neighbor_targets(Y)
    with pytest.raises(ValueError, match="needs the targets of fit"):
        reg.neighbor_stability(NEW)
