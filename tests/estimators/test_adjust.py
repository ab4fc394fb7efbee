"""Adjusted neighbours: each target moved by what the network holds of the difference."""

import pickle
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inner.inference import Evaluation, LabelExclusion, NeighborBank, Neighbors

from nona_sklearn import NONAHead, NONARegressor, SoftStep, load, save
from nona_sklearn.attention import AverageHead
from nona_sklearn.attention.functional import L2Attention
from nona_sklearn.attention.head import TRUST_FACTOR
from nona_sklearn.explanation import Explanation
from nona_sklearn.similarity import SIMILARITIES


def nona(**params):
    params = {"max_iter": 4, "hidden_layer_sizes": (16,), "random_state": 0} | params
    return NONARegressor(**({"similarity": "l2"} | params))


@pytest.fixture(scope="module")
def reg(plane):
    return nona(n_estimators=2).fit(plane[0], plane[2])


def identity(reg, X):
    """Sum of weight times adjusted target over all rows, from the table."""
    table = reg.explain(X)
    adjusted = table.filter(like="adjusted_target")
    sums = adjusted.mul(table["weight"], axis=0).groupby(table["query"], sort=False).sum()
    return np.squeeze(sums.to_numpy(), 1) if adjusted.shape[1] == 1 else sums.to_numpy()


def test_a_target_beyond_all_others_leaves_the_adjustments_of_others(plane, tmp_path):
    """Otherwise, its size would be the unit of what the network learns: errors of 100,000."""
    X, X_test, y, y_test = plane
    reg = nona(n_estimators=1).fit(X, np.r_[1e9, y[1:]])
    assert np.median(abs(reg.predict(X_test) - y_test)) < 2 * y.std()
    save(reg, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.targets_.learned_range, reg.targets_.learned_range)


# -- the head ---------------------------------------------------------------------------------


def test_on_paper():
    """Two neighbours equally near: (10 + 5 - 3 + 20 + 5 - 9) / 2 = 14."""
    head = NONAHead(n_adjusted=1)
    query, neighbors = torch.tensor([[0.0, 5.0]]), torch.tensor([[1.0, 3.0], [-1.0, 9.0]])
    assert head(query, neighbors, torch.tensor([10.0, 20.0])).item() == 14
    assert head(query, neighbors, torch.tensor([10.0, 20.0]), adjustment_scale=None).item() == 15
    assert head(query, neighbors, torch.tensor([10.0, 20.0]), adjustment_scale=10.0).item() == 5
    weights = head.neighbor_weights(query, neighbors)  # g is not compared
    assert weights.tolist() == [[0.5, 0.5]]


def test_the_shift_fades_beyond_reach():
    head = NONAHead(n_adjusted=1).eval()
    head.trust_radius.fill_(2.0)
    neighbors, targets = torch.tensor([[0.0, 1.0]]), torch.tensor([10.0])
    for distance, left in [(1.0, 1.0), (2.0, 1.0), (4.0, 0.25), (20.0, 0.01)]:
        query = torch.tensor([[distance, 5.0]])
        assert head(query, neighbors, targets).item() == pytest.approx(10 + left * 4)


@pytest.mark.parametrize("training", [False, True])
def test_a_trend_in_g_does_not_depend_on_the_neighbours(training):
    """If g is the truth, any weights predict it: all adjusted targets are the same."""
    head = NONAHead("dot", n_adjusted=2).train(training)
    query, neighbors = torch.randn(5, 6), torch.randn(20, 6)
    targets = neighbors[:, 4:] + 3.0
    torch.testing.assert_close(head(query, neighbors, targets), query[:, 4:] + 3.0)


@given(st.integers(0, 10**6), st.sampled_from([None, 1, 2]), st.booleans())
def test_the_quick_way_is_autograd_s(seed, n_outputs, excluded):
    """In training: values, and gradients of embeddings, adjustments and temperature."""
    generator = torch.Generator().manual_seed(seed)
    c = n_outputs or 1
    query, neighbors = (
        torch.randn(n, 3 + c, generator=generator, dtype=torch.float64).requires_grad_()
        for n in (4, 7)
    )
    shape = (7,) if n_outputs is None else (7, n_outputs)
    targets = torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.rand(4, 7, generator=generator) < 0.3 if excluded else None
    head = NONAHead(learn_temperature=True, n_adjusted=c).double()
    results = []
    for training in (True, False):
        head.train(training)
        prediction = head(query, neighbors, targets, mask)
        leaves = query, neighbors, head.log_temperature
        results.append((prediction, *torch.autograd.grad(prediction.square().sum(), leaves)))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_finite_differences():
    query, neighbors, targets = (
        torch.randn(n, d, dtype=torch.float64).requires_grad_()
        for n, d in ((3, 2), (5, 2), (5, 2))
    )
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    inputs = query, neighbors, targets, temperature
    assert torch.autograd.gradcheck(L2Attention.apply, inputs)


def test_without_neighbours_nothing_is_adjusted():
    head, query, neighbors = NONAHead(n_adjusted=1), torch.randn(2, 3), torch.randn(4, 3)
    excluded = torch.tensor([[True] * 4, [False] * 4])
    for training in (True, False):
        prediction = head.train(training)(query, neighbors, torch.randn(4), excluded)
        assert prediction[0] == 0
        assert prediction[1] != 0


def test_a_negative_number_of_adjustments_is_refused():
    with pytest.raises(ValueError, match="n_adjusted must be an integer of at least 0, got -1"):
        NONAHead(n_adjusted=-1)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("step", [None, "s1"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_predictions_at_once_and_tile_by_tile_are_the_same(similarity, step, leave_one_out):
    """With a reach that half of the queries are beyond, and an average of two networks."""
    generator = torch.Generator().manual_seed(0)
    head = AverageHead(
        [NONAHead(similarity, step and SoftStep(step), n_adjusted=2) for _ in range(2)]
    ).eval()
    embeddings = torch.randn(60, 10, generator=generator)
    values = torch.randn(60, 2, generator=generator).double()
    neighbors = Neighbors(embeddings, values, adjustment_scale=torch.tensor([3.0, 0.5]).double())
    query = embeddings[:30] if leave_one_out else 2 * torch.randn(30, 10, generator=generator)
    labels = torch.arange(60)
    evaluation = Evaluation(
        head, neighbors, query, LabelExclusion(labels[:30], labels) if leave_one_out else None
    )
    for own, distance in zip(head.heads, evaluation.distances().median(dim=0).values, strict=True):
        own.trust_radius.copy_(distance)
    with torch.no_grad():
        expected = evaluation.attend().double()
    torch.testing.assert_close(evaluation.mean(), expected, rtol=0, atol=2e-5)
    weights, _, adjusted = evaluation.heaviest(60 - leave_one_out)
    torch.testing.assert_close(
        (weights[..., None] * adjusted).sum(dim=1), expected, rtol=0, atol=2e-5
    )
    [behind] = evaluation.map_weighted_rows(
        lambda behind: (behind.weights()[..., None] * behind.values).sum(1)
    )
    torch.testing.assert_close(behind, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("prior", [False, True])
def test_tiles_measure_how_far_a_query_is(prior):
    """Half are beyond reach, whatever the temperature and what neighbours weigh beforehand."""
    generator = torch.Generator().manual_seed(0)
    head = NONAHead(learn_temperature=True, n_adjusted=1).eval()
    head.log_temperature.data.fill_(np.log(3.0))
    neighbors = Neighbors(
        torch.randn(40, 4, generator=generator),
        torch.randn(40, generator=generator).double(),
        torch.linspace(-2, 2, 40) if prior else None,
    )
    query = 3 * torch.randn(20, 4, generator=generator)
    evaluation = Evaluation(head, neighbors, query)
    places = query[:, :3].double(), neighbors.embeddings[:, :3].double()
    distance = torch.cdist(*places).amin(dim=1)
    torch.testing.assert_close(evaluation.distances()[:, 0], distance, rtol=1e-5, atol=0)
    head.trust_radius.copy_(distance.median())
    with torch.no_grad():
        expected = evaluation.attend().double()
    torch.testing.assert_close(evaluation.mean(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("reach", [2.0, np.inf])
def test_tile_by_tile_without_neighbours_nothing_is_adjusted(reach):
    head = NONAHead(n_adjusted=1).eval()
    head.trust_radius.fill_(reach)
    neighbors = Neighbors(torch.randn(4, 3), torch.randn(4).double())
    labels = torch.zeros(4, dtype=torch.long)
    evaluation = Evaluation(
        head, neighbors, torch.randn(2, 3), LabelExclusion(torch.arange(2), labels)
    )
    with torch.no_grad():
        expected = evaluation.attend().double()
    assert evaluation.mean()[0] == expected[0] == 0
    torch.testing.assert_close(evaluation.mean(), expected, rtol=0, atol=2e-5)


def test_influence_is_the_difference_to_a_bank_without_the_row():
    generator = torch.Generator().manual_seed(0)
    head = NONAHead(n_adjusted=1).eval()
    neighbors = Neighbors(
        torch.randn(12, 4, generator=generator), torch.randn(12, generator=generator).double()
    )
    query = torch.randn(6, 4, generator=generator)
    before = Evaluation(head, neighbors, query).mean()
    change = Evaluation(head, neighbors, query).influence()[1]
    for row in range(12):
        others = torch.arange(12) != row
        after = Evaluation(head, neighbors[others], query).mean()
        assert change[row].item() == pytest.approx(
            (after - before).square().mean().item(), rel=1e-4
        )


# -- the estimator ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
@pytest.mark.parametrize("n_estimators", [1, 2])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_prediction_is_the_sum_of_weights_times_adjusted_targets(plane, n_estimators, outputs):
    X, X_test, y, _ = plane
    y = y if outputs == 1 else np.column_stack([y, 100 - y**2])
    reg = nona(n_estimators=n_estimators).fit(X, y)
    atol = 1e-5 * np.abs(y).max()  # the table's weights are float32

    def check():
        for queries in (X_test, None):
            np.testing.assert_allclose(identity(reg, queries), reg.predict(queries), atol=atol)

    check()
    reg.remove_neighbors(ids=[3, 5])
    reg.add_neighbors(X_test[:4], y[:4])
    check()
    reg.compress(40)
    check()
    again = pickle.loads(pickle.dumps(reg))
    np.testing.assert_array_equal(again.predict(X_test), reg.predict(X_test))


@pytest.mark.slow
def test_without_adjustment_it_is_weights_at_y(plane):
    X, X_test, y, _ = plane
    reg = nona(adjust=False).fit(X, y)
    np.testing.assert_allclose(reg.neighbor_weights(X_test) @ y, reg.predict(X_test), atol=1e-6)
    table = reg.explain(X_test)
    np.testing.assert_array_equal(
        table["target"][table["neighbor"] != "others"],
        table["adjusted_target"][table["neighbor"] != "others"],
    )


@pytest.mark.slow
def test_it_follows_a_line_beyond_the_bank():
    """Neighbours alone cannot leave the range of their targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, 2.0, 3.0]
    far = np.array([[1.6, 2.1, 2.6]])  # 13.6; the bank ends at about 10
    params = {"n_estimators": 1, "max_iter": 40, "numerical_embedding": None, "random_state": 0}
    adjusted, plain = (
        NONARegressor(adjust=adjust, hidden_layer_sizes=(), **params).fit(X, y)
        for adjust in (True, False)
    )
    assert plain.predict(far)[0] < y.max()
    assert adjusted.predict(far)[0] > y.max()
    assert adjusted.score(X, y) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("numerical_embedding", ["periodic", None])
def test_far_queries_do_not_run_away(numerical_embedding):
    """A steep trend, and queries at 10 and 1,000 times the range that it was learned on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = np.exp(X[:, 0]) + 5 * X[:, 1]
    reg = nona(n_estimators=2, max_iter=10, numerical_embedding=numerical_embedding).fit(X, y)
    span = y.max() - y.min()
    for far in (10, 1000):
        predictions = reg.predict(far * X)
        assert predictions.max() < y.max() + span
        assert predictions.min() > y.min() - span
    # With no scaler in the way: a shift of many reaches, faded to less than the targets' range.
    reach = max(float(head.trust_radius) for head in reg.network_.head.heads)
    out = torch.full((1, reg.bank_.embeddings.shape[1]), 1e3 * reach)
    head, neighbors = reg.network_.head, reg.bank_.neighbors.with_offset(None)
    assert abs(Evaluation(head, neighbors, out).mean().item() - y.mean()) < span
    for own in head.heads:
        own.trust_radius.fill_(np.inf)
    assert abs(Evaluation(head, neighbors, out).mean().item() - y.mean()) > span


def test_reach_is_that_of_the_rows_that_were_set_aside(plane):
    X, _, y, _ = plane
    reg = nona(n_estimators=1).fit(X, y)
    [valid] = reg.validation_indices_
    z = reg.transform(X)
    train = np.setdiff1d(np.arange(len(X)), valid)
    nearest = np.linalg.norm(z[valid][:, None] - z[train], axis=2).min(axis=1)
    assert float(reg.network_.head.trust_radius) == pytest.approx(
        TRUST_FACTOR * nearest.max(), rel=1e-4
    )
    alone = nona(n_estimators=1, validation_fraction=None).fit(X, y)
    expected = TRUST_FACTOR * alone.neighborhood(None)["distance"].max()
    assert float(alone.network_.head.trust_radius) == pytest.approx(expected, rel=1e-4)


def test_the_shift_fades_from_twice_the_distance_of_the_farthest_row():
    """Of rows at a distance of 1 and of 3 from the bank: full at 6, a quarter at 12."""
    head = NONAHead(n_adjusted=1).eval()
    neighbors = Neighbors(torch.tensor([[0.0, 1.0]]), torch.tensor([10.0]), adjustment_scale=1.0)
    evaluation = Evaluation(head, neighbors, torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
    head.fit_trust_radius(evaluation.distances())
    for distance, left in [(5.9, 1.0), (6.0, 1.0), (12.0, 0.25)]:
        query = torch.tensor([[distance, 5.0]])
        mean = Evaluation(head, neighbors, query).mean().item()
        assert mean == pytest.approx(10 + left * 4)


@pytest.mark.slow
def test_other_targets_are_not_adjusted(reg, plane):
    """Adjustments learned for one target do not apply to another, after edits and pickling."""
    _, X_test, y, _ = plane
    other = pickle.loads(pickle.dumps(reg)).set_neighbor_targets(100 * np.cos(y))
    other.add_neighbors(X_test[:2], [1.0, 2.0])
    other = pickle.loads(pickle.dumps(other))
    targets = other.bank_.targets.numpy()
    expected = other.neighbor_weights(X_test) @ targets
    np.testing.assert_allclose(other.predict(X_test), expected, atol=1e-4)
    quantiles = other.predict_quantiles(X_test, [0.0, 1.0])
    assert np.isfinite(quantiles).all()
    assert not np.allclose(reg.predict(X_test), reg.neighbor_weights(X_test) @ y, atol=1e-3)


def test_constant_targets_stay_constant(plane):
    reg = nona(n_estimators=1).fit(plane[0], np.full(120, 7.0))
    np.testing.assert_allclose(reg.predict(100 * plane[1]), 7.0, rtol=1e-12)


def test_units_of_the_targets_do_not_matter(plane):
    X, X_test, y, _ = plane
    small, large = (nona(n_estimators=1).fit(X, y * scale) for scale in (1.0, 2.0**60))
    np.testing.assert_allclose(large.predict(X_test), small.predict(X_test) * 2.0**60, rtol=1e-4)


def test_a_further_fit_starts_from_the_weights_not_from_the_reach(plane):
    X, _, y, _ = plane
    reg = nona(n_estimators=1, warm_start=True, max_iter=1).fit(X, y)
    reach = float(reg.network_.head.trust_radius)
    reg.fit(10 * X, y)
    assert float(reg.network_.head.trust_radius) != reach


# -- the table --------------------------------------------------------------------------------


def columns_of(found):
    return found.columns() | found.target_columns()


def test_the_table_on_paper():
    """Targets 10 and 20, moved by 5 - 3 and 5 - 9; one of them named."""
    neighbors = Neighbors(
        torch.tensor([[1.0, 3.0], [-1.0, 9.0]]), torch.tensor([10.0, 20.0]).double()
    )
    evaluation = Evaluation(NONAHead(n_adjusted=1), neighbors, torch.tensor([[0.1, 5.0]]))
    names = {"queries": np.array(["house"]), "names": np.array(["sold", "let"])}
    table = columns_of(Explanation.from_evaluation(evaluation, 1, **names))
    near = 1 / (1 + np.exp(-0.2))
    assert list(table["neighbor"]) == ["sold", "others"]
    assert list(table["query"]) == ["house", "house"]
    np.testing.assert_allclose(table["weight"], [near, 1 - near], rtol=1e-6)
    np.testing.assert_allclose(table["target"], [10, 20], rtol=1e-5)
    np.testing.assert_allclose(table["adjusted_target"], [12, 16], rtol=1e-5)
    np.testing.assert_allclose(table["contribution"], [12 * near, 16 * (1 - near)], rtol=1e-5)


def test_others_of_small_weight_are_reported():
    """A part in 200: their contribution is more than rounding."""
    neighbors = Neighbors(
        torch.zeros(3, 2),
        torch.tensor([1.0, 7.0, 8.0]).double(),
        torch.tensor([0.995, 0.003, 0.002]).log(),
    )
    evaluation = Evaluation(NONAHead(), neighbors, torch.ones(1, 2))
    others = columns_of(Explanation.from_evaluation(evaluation, 1))
    values = [others[name][1] for name in ("weight", "target", "contribution")]
    np.testing.assert_allclose(values, [0.005, 7.4, 0.037], rtol=1e-4)


def test_contributions_sum_to_the_prediction(reg, plane):
    X_test = plane[1]
    # "others" are the rest of a prediction; without them, weights are rounded to float32.
    for queries, k, atol in ((X_test, 3, 1e-12), (X_test, 120, 1e-6), (None, None, 1e-6)):
        sums = reg.explain(queries, k).groupby("query")[["weight", "contribution"]].sum()
        np.testing.assert_allclose(sums["weight"], 1, rtol=0, atol=1e-12)
        np.testing.assert_allclose(sums["contribution"], reg.predict(queries), rtol=0, atol=atol)


def test_every_row_with_weight_is_listed_unless_fewer_are_wanted(plane):
    """A weighting that ends leaves each query as many rows as have weight."""
    X, X_test, y, _ = plane
    ends = nona(n_estimators=1, weighting="sparsemax").fit(X, y)
    table = ends.explain(X_test)
    sizes = ends.neighborhood(X_test)["n_nonzero_weights"]
    assert table.groupby("query").size().tolist() == sizes.tolist()
    assert (table["weight"] > 0).all()
    assert len({*sizes}) > 1
    k = int(np.median(sizes))
    few = ends.explain(X_test, k)
    with_others = few.groupby("query")["neighbor"].agg(lambda names: "others" in {*names})
    assert with_others.tolist() == (sizes > k).tolist()
    assert few.groupby("query").size().tolist() == np.minimum(sizes, k + 1).tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* whose own target")  # of stored rows, on purpose
def test_rows_go_by_the_names_in_their_index(plane):
    pd = pytest.importorskip("pandas")
    X, X_test, y, _ = plane
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"row {i}" for i in range(len(X))])
    queries = pd.DataFrame(X_test, columns=["a", "b"], index=pd.RangeIndex(7, 7 + len(X_test)))
    reg = nona(n_estimators=1).fit(frame, y)
    table = reg.explain(queries, 2)
    assert list(table["query"][:6]) == [7, 7, 7, 8, 8, 8]
    _, ids = reg.heaviest_neighbors(queries, 2)
    assert list(table["neighbor"][:3]) == [f"row {i}" for i in ids[0]] + ["others"]
    assert set(reg.explain(None, 2)["query"]) == set(frame.index)
    reg.remove_neighbors(ids=list(range(1, 120)))
    [new] = reg.add_neighbors(queries[:1].reset_index(drop=True), [1.0])
    assert set(reg.explain(queries, 2)["neighbor"]) == {"row 0", f"added {new}"}
    assert b"row 1" not in pickle.dumps(reg)  # forgotten with its row
    by_number = nona(n_estimators=1).fit(X, y).explain(X_test, 2)
    assert list(by_number["query"][:3]) == [0, 0, 0]
    assert by_number["neighbor"][0] == ids[0, 0]


class NoPandas:
    """Finds all modules but pandas; None in its place confuses scikit-learn."""

    @staticmethod
    def find_spec(name, *_):
        if name == "pandas":
            raise ImportError("not installed")


def test_the_table_without_pandas(reg, plane, monkeypatch):
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoPandas, *sys.meta_path])
    table = reg.explain(plane[1], 4)
    predicted = np.bincount(table["query"].astype(int), table.contribution)
    # Weights of few rows are normalised in float64.
    np.testing.assert_allclose(predicted, reg.predict(plane[1]), rtol=1e-6)
    found = reg.influence()
    assert list(found) == ["neighbor", "id", "weight", "change", "error"]
    assert found.neighbor.tolist() == found.id.tolist() == list(range(120))


@pytest.mark.parametrize("n_neighbors", [0, 121, 2.5, True])
def test_a_number_of_neighbours_that_there_is_not(reg, plane, n_neighbors):
    with pytest.raises(ValueError, match=f"n_neighbors must be .* 1 to 120, got {n_neighbors}"):
        reg.explain(plane[1], n_neighbors)


def test_a_bank_keeps_its_names_and_unit():
    neighbors = Neighbors(
        torch.randn(3, 2), torch.arange(3.0), adjustment_scale=torch.tensor([2.0])
    )
    names = np.array(["a", "b", "c"], dtype=object)
    bank = NeighborBank(neighbors, names=names, numbered=False)
    smaller = pickle.loads(pickle.dumps(bank.keep(np.array([0, 2]))))
    assert smaller.names.tolist() == ["a", "c"]
    assert smaller.neighbors.adjustment_scale.tolist() == [2.0]
    larger = smaller.add(Neighbors(torch.randn(1, 2), torch.zeros(1)))
    assert larger.names.tolist() == ["a", "c", "added 3"]
    assert larger.with_targets(torch.zeros(3)).neighbors.adjustment_scale is None
