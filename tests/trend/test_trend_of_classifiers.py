"""Classifiers that pool the votes of rows with the probabilities of a trend.

Edits and files are in test_trend_of_estimators.py.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from inner.data import TableRows
from inner.inference import SHARE, Evaluation, _share_by_log_loss, with_numbers
from inner.trend import INVERSE_PENALTY
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import nn

from nona_sklearn import (
    NeighborsDisplay,
    NeighborsReport,
    NONAClassifier,
    SoftStepKNeighborsClassifier,
    load,
    save,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
SCORE = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=150)
Y = np.array(["low", "middle", "high"])[np.digitize(SCORE, [-0.5, 0.7])]
TWO = np.c_[Y == "high", SCORE > 0].astype(int)
NEW = RNG.normal(size=(20, 3))
DAYS = np.sort(RNG.uniform(0, 100, size=150))
SMALL = {"similarity": "l2", "hidden_layer_sizes": (16,), "max_iter": 10, "random_state": 0}


def nona(**params):
    return NONAClassifier(**({"trend": "kernel", "n_estimators": 2} | SMALL | params))


@pytest.fixture(scope="module")
def fitted():
    return nona().fit(X, Y)


def offset_of(model):
    return model.bank_.neighbors.offset


def encoded(model, rows):
    return model.embed(rows).inputs


def shared(model, share):
    """The same model whose trend has another share."""
    other = copy.deepcopy(model)
    other.bank_ = with_numbers(other.bank_, share=share)
    return other


# -- probabilities -------------------------------------------------------------------------


def test_a_share_of_0_is_the_networks_alone(fitted):
    alone = nona(trend=None).fit(X, Y)
    found = shared(fitted, 0.0)
    np.testing.assert_allclose(found.predict_proba(NEW), alone.predict_proba(NEW), atol=1e-12)
    np.testing.assert_allclose(found.predict_proba(None), alone.predict_proba(None), atol=1e-12)


def test_a_share_of_1_is_the_calibrated_kernel(fitted):
    expected = fitted.bank_.trend(encoded(fitted, NEW)).exp().numpy()
    np.testing.assert_allclose(shared(fitted, 1.0).predict_proba(NEW), expected, atol=1e-12)


def test_probabilities_are_pooled_with_those_of_each_network(fitted):
    """The mean over networks of p^(1 - b) F^b, each normalised."""
    share, queries = offset_of(fitted).share, fitted.embed(NEW)
    of_trend = fitted.bank_.trend(encoded(fitted, NEW)).exp()
    neighbors = fitted.bank_.neighbors.with_offset(None)
    pooled = []
    split = fitted.network_.head.split_by_head(queries.embeddings, neighbors.embeddings)
    for head, query, z in split:
        alone = Evaluation(head, replace(neighbors, rows=z), query).mean()
        product = alone ** (1 - share) * of_trend**share
        pooled.append(product / product.sum(dim=1, keepdim=True))
    expected = torch.stack(pooled).mean(dim=0).numpy()
    np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=1e-12)


@pytest.mark.parametrize("labels", [Y, Y == "high"], ids=["three", "two"])
def test_values_are_calibrated_by_a_logistic_regression_on_left_out_ones(labels):
    weights = 1 + np.arange(150) % 3
    model = nona(n_estimators=1).fit(X, labels, sample_weight=weights)
    trend = model.bank_.trend
    left_out = np.concatenate(
        [trend.trend.without(np.array([i]))(encoded(model, X[[i]])).numpy() for i in range(150)]
    )
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    regression.fit(left_out, labels, weights / weights.mean())
    order = np.argsort(model.classes_)  # sorted already
    of_rows = np.exp(trend.of_rows(np.arange(150), TableRows(model.bank_.inputs)))[:, order]
    np.testing.assert_allclose(of_rows, regression.predict_proba(left_out), atol=1e-3)
    values = trend.trend(encoded(model, NEW)).numpy()
    of_queries = trend(encoded(model, NEW)).exp().numpy()
    np.testing.assert_allclose(of_queries, regression.predict_proba(values), atol=1e-3)


@pytest.mark.parametrize("kind", ["rows", "groups", "times", "class_weight"])
def test_several_outputs_and_relations_of_rows(kind):
    parts = {"groups": RNG.integers(0, 30, size=150)} if kind == "groups" else {}
    parts |= {"times": DAYS} if kind == "times" else {}
    balanced = {"class_weight": "balanced"} if kind == "class_weight" else {}
    model = nona(**balanced).fit(X, TWO, **parts)
    for each, own in zip(model.predict_proba(NEW), TWO.T, strict=True):
        np.testing.assert_allclose(each.sum(axis=1), 1)
        assert each.shape == (20, len(np.unique(own)))
    assert np.isfinite(np.stack(model.predict_proba(None))).all()


def test_outputs_are_calibrated_by_themselves():
    trend = nona().fit(X, TWO).bank_.trend
    assert (trend.slopes[:2, 2:] == 0).all()
    assert (trend.slopes[2:, :2] == 0).all()


def test_classes_of_more_weight_are_more_probable():
    heavy = nona(n_estimators=1, class_weight={"low": 20.0}).fit(X, Y)
    equal = nona(n_estimators=1).fit(X, Y)
    at, column = encoded(equal, NEW), list(equal.classes_).index("low")
    gain = heavy.bank_.trend(at)[:, column] - equal.bank_.trend(at)[:, column]
    assert gain.mean() > 0.2


# -- rows ----------------------------------------------------------------------------------


def contributions(table):
    return table.filter(like="contribution").to_numpy(dtype=float)


def test_contributions_sum_to_probabilities(fitted):
    table = fitted.explain(NEW)
    sums = [contributions(each).sum(axis=0) for _, each in table.groupby("query")]
    np.testing.assert_allclose(sums, fitted.predict_proba(NEW), atol=1e-5)


def test_what_the_network_and_the_trend_add_are_lines_of_their_own(fitted):
    """The network adds what it adds without a trend; the trend adds the rest."""
    alone = nona(trend=None).fit(X, Y)
    both, before = fitted.explain(NEW[:1]), alone.explain(NEW[:1])
    assert both["neighbor"].tolist()[-2:] == ["network", "trend"]
    np.testing.assert_allclose(contributions(both)[-2], contributions(before)[-1], atol=1e-6)
    change = fitted.predict_proba(NEW[:1]) - alone.predict_proba(NEW[:1])
    np.testing.assert_allclose(contributions(both)[-1:], change, atol=1e-6)
    assert "trend" not in shared(fitted, 0.0).explain(NEW[:1])["neighbor"].tolist()


def test_the_display_draws_both(fitted):
    display = NeighborsDisplay.from_estimator(fitted, NEW[:1])
    assert list(display.added) == ["network", "trend"]
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels[-2:] == ["network", "trend"]


def test_a_report_tells_that_both_add(fitted):
    page = NeighborsReport(fitted, NEW[:1])._repr_html_()
    assert "added by the network and trend" in page


@pytest.mark.parametrize("adjust", [True, False])
def test_influence_is_the_change_without_a_row(adjust):
    model = nona(n_neighbors=None, adjust=adjust).fit(X, TWO)
    changes = model.influence(NEW)["change"]
    before = np.hstack(model.predict_proba(NEW))
    for j in (0, 70):
        other = copy.deepcopy(model).remove_neighbors(ids=j)
        squares = np.square(np.hstack(other.predict_proba(NEW)) - before).sum(axis=1)
        np.testing.assert_allclose(changes[j], np.sqrt(squares.mean()), rtol=1e-3)


def test_features_of_rows_move_their_values(fitted):
    """As they move the function; the same features leave them as they are."""
    trend, ids = fitted.bank_.trend, np.array([3, 90])
    own = encoded(fitted, X[ids])
    at_rows = trend.of_rows(ids, own)
    np.testing.assert_allclose(trend.moved(ids, own).numpy(), at_rows, atol=1e-6)
    assert not np.allclose(trend.moved(ids, TableRows(own.encoded + 1)).numpy(), at_rows, atol=0.1)
    assert fitted.feature_importances_[2] < fitted.feature_importances_[:2].min()


# -- the share -----------------------------------------------------------------------------


def test_the_share_is_near_that_of_most_tables_for_few_rows(fitted):
    assert abs(offset_of(fitted).share - SHARE.share) < 0.1
    unvalidated = nona(validation_fraction=None).fit(X, Y)
    assert offset_of(unvalidated).share == SHARE.share


@pytest.mark.parametrize("given", [True, False])
def test_the_share_is_chosen_by_rows_that_trained_no_network(given):
    """By X_val, or by the validation rows, each without itself, against a grid of shares."""
    if given:
        model = nona(n_estimators=1).fit(X, Y, X_val=NEW, y_val=Y[:20])
        rows, labels = NEW, Y[:20]
    else:
        model = nona(n_estimators=1, validation_fraction=0.4).fit(X, Y)
        (rows,) = model.validation_indices_
        labels = Y[rows]
    losses = {}
    for share in np.linspace(0, 1, 101):
        other = shared(model, share)
        found = other.predict_proba(rows) if given else other.predict_proba(None)[rows]
        losses[share] = log_loss(labels, found)
    improbable = {s: len(labels) * losses[s] + ((s - 0.7) / 0.12) ** 2 / 2 for s in losses}
    expected = min(improbable, key=improbable.get)
    assert offset_of(model).share == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("wrong", ["the trend", "the networks"])
def test_of_many_rows_the_share_is_that_of_the_least_log_loss(wrong):
    """Of 400 rows, whose classes one of both knows, and the other takes for others."""
    model = nona(n_estimators=1).fit(X, SCORE > 0)
    right = torch.eye(2, dtype=torch.float64)[torch.arange(400) % 2] * 0.8 + 0.1
    pair = [right, 1 - right] if wrong == "the trend" else [1 - right, right]
    truth = (right > 0.5).double()
    networks, log_of_trend = pair[0], pair[1].log()
    counts, head = torch.ones(400, dtype=torch.float64), model.network_.head
    found = _share_by_log_loss(SHARE, head, model.bank_, networks, log_of_trend, truth, counts)
    best = 0.0 if wrong == "the trend" else 1.0
    assert found == pytest.approx(best, abs=1e-3)


# -- where it cannot be, and few rows ------------------------------------------------------


def test_it_needs_columns_of_a_table():
    clf = NONAClassifier(nn.Linear(3, 3), trend="kernel", **SMALL)
    with pytest.raises(ValueError, match="trend must be None with a feature_extractor, got 'kern"):
        clf.fit(X.astype(np.float32), Y)


def test_other_losses_have_the_same_trend(fitted):
    """It is no part of training; the share is that of the least log loss."""
    model = nona(loss="as_softmax").fit(X, Y)
    at = encoded(fitted, NEW)
    np.testing.assert_array_equal(model.bank_.trend(at).numpy(), fitted.bank_.trend(at).numpy())
    np.testing.assert_allclose(model.predict_proba(NEW).sum(axis=1), 1)


def test_one_class_is_certain():
    with pytest.warns(UserWarning, match="y holds one class only"):
        model = nona().fit(X[:20], np.ones(20, dtype=int))
    np.testing.assert_array_equal(model.predict_proba(NEW), np.ones((20, 1)))


def test_a_class_of_one_row_is_possible():
    model = nona(n_estimators=1).fit(X[:30], np.where(np.arange(30) == 7, "rare", Y[:30]))
    probabilities = model.predict_proba(np.r_[X[:30], NEW])
    assert ((probabilities > 0) & (probabilities < 1)).all()


def test_rows_without_information_have_the_frequencies_of_classes():
    """The left-out values are lower for a row's own class; the calibration hardly sees that."""
    random = np.random.default_rng(1)
    rows, labels = random.normal(size=(200, 4)), (random.random(200) < 0.3).astype(int)
    bank = nona(n_estimators=1).fit(rows, labels).bank_
    probabilities = np.exp(bank.trend.of_rows(np.arange(200), TableRows(bank.inputs)))[:, 1]
    assert abs(probabilities - labels.mean()).mean() < 0.15


# -- additive trends, and SoftStep k-NN ----------------------------------------------------


def soft(**params):
    return SoftStepKNeighborsClassifier(**({"max_iter": 5, "random_state": 0} | params))


@pytest.mark.parametrize("kind", [nona, soft])
def test_an_additive_trend_is_calibrated_as_a_kernel_is(kind, tmp_path):
    """Its left-out values, one function of each feature, to probabilities of each output."""
    model = kind(trend="additive").fit(X, TWO)
    trend = model.bank_.trend
    left_out = trend.trend.of_rows(np.arange(150))
    regression = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    expected = regression.fit(left_out[:, :2], TWO[:, 0]).predict_proba(left_out[:, :2])
    of_rows = np.exp(trend.of_rows(np.arange(150), None))
    np.testing.assert_allclose(of_rows[:, :2], expected, atol=1e-3)
    rows = np.repeat(NEW, 2, axis=0)
    rows[::2, 0], rows[1::2, 0] = -1.0, 1.0
    steps = np.diff(trend.trend(encoded(model, rows)).numpy().reshape(20, 2, 4), axis=1)
    np.testing.assert_allclose(steps, np.broadcast_to(steps[:1], steps.shape), atol=1e-9)
    model.remove_neighbors(ids=[3])
    model.add_neighbors(NEW, TWO[:20])
    save(model, tmp_path / "model.nona")
    again = load(tmp_path / "model.nona")
    assert again.trend_ == "additive"
    for one, other in zip(again.predict_proba(NEW), model.predict_proba(NEW), strict=True):
        # A product's last digits depend on where memory begins, which a mapped file shifts.
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_softstep_pools_its_votes_with_a_kernel():
    """The neighbourhood is learned as without it."""
    model, alone = soft(similarity="log_l2").fit(X, Y), soft(trend=None).fit(X, Y)
    assert (model.trend_, alone.trend_) == ("kernel", None)
    share, of_rows = offset_of(model).share, alone.predict_proba(NEW)
    of_trend = model.bank_.trend(encoded(model, NEW)).exp().numpy()
    expected = of_rows ** (1 - share) * of_trend**share
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(NEW), expected, atol=1e-9)
    np.testing.assert_array_equal(model.feature_weights_, alone.feature_weights_)


@pytest.mark.parametrize("params", [{"smoothing": False}, {"validation_fraction": None}], ids=str)
def test_softstep_has_it_in_all_its_forms(params):
    model = soft(similarity="log_l2", **params).fit(X, Y, groups=np.arange(150) // 5)
    table = model.explain(NEW)
    sums = [contributions(each).sum(axis=0) for _, each in table.groupby("query")]
    np.testing.assert_allclose(sums, model.predict_proba(NEW), atol=1e-5)
    assert (offset_of(model).share == SHARE.share) == ("validation_fraction" in params)


@pytest.mark.parametrize("trend", ["kernel", "additive", LogisticRegression()], ids=str)
def test_softstep_needs_ten_rows(trend):
    few, enough = (soft(trend=trend).fit(X[:n], Y[:n] == "high") for n in (9, 10))
    assert few.trend_ is None is few.bank_.trend
    assert enough.trend_ is not None is not enough.bank_.trend
