"""Random valid parameters and data: fit raises a clear error, or every invariant holds.

Each invariant is a function of a fitted case, so that a failure names what does not hold. How to
go on from another seed, and how to repeat a failure: docs/developing.md.
"""

import pickle
import random
import re
import warnings
from collections import Counter
from dataclasses import replace
from functools import cached_property
from unittest import mock

import numpy as np
import pytest
import sklearn
import torch
from hypothesis import HealthCheck, Phase, given, settings
from inner.estimators import explain, trained
from inner.training import loop
from sklearn.utils import check_random_state
from strategies import CLASSIFIERS, cases, take

import nona_sklearn
from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)
from nona_sklearn.attention.head import heads_of
from nona_sklearn.explanation import NEGLIGIBLE

N_EXAMPLES = 60  # of each estimator
EACH = pytest.mark.parametrize(
    "kind",
    [NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier],
)
# Of strings that are read; and of scikit-learn, about targets of classifiers that are legal
# nevertheless.
SILENCED = pytest.mark.filterwarnings(
    "ignore:Strings were read",
    "ignore:The number of unique classes is greater than 50%",
    "ignore::sklearn.exceptions.DataConversionWarning",
    "ignore:.*networks predict validation rows no better",
    "ignore:column .* categories in .* rows, (none of them often enough|most of them once)",
    "ignore:Columns stay categories where nearly all strings",
    "ignore:.* whose own target is part of the prediction",
    "ignore:y holds one class only",
)
# An example is a fit: it takes longer than health checks allow, and too long to explain a failure
# by further ones.
SETTINGS = settings(
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)

N_QUERIES = 3  # rows of the bank that are queries, too
LEVELS = np.array([0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1])
ROUNDING = 8 * np.finfo(np.float32).eps  # of embeddings and weights, which are float32
EXACT = 1e-9  # of what is computed in float64 from the same weights

#: Why data and parameters that are legal by themselves may be refused together; and queries.
REFUSALS = re.compile(
    r"Found (a table|array) with 1 sample|X must have at least 2 rows to fit, got 1"
    r"|(sample|class)_weight must be above zero for at least 2 rows"
    r"|sample_weight times class_weight must be a number that float64 holds"
    r"|groups must hold at least 2 different ones"
    r"|validation_fraction=\S+ of n_(samples|groups)=\d+ leaves fewer than 2 training"
    r"|micro_batch_size=1 leaves no"
    r"|hidden_layer_sizes must not be None without"
    r"|trend must be None with a feature_extractor"
    r"|adjust must be False with hidden_layer_sizes=None"
    r"|(learn_feature_weights|feature_extractor|n_neighbors) must be .* similarity='features'"
    r"|weighting='(gaussian|triangular)' needs similarity 'l2' or 'l1'"
    r"|algorithm='(kd|ball)_tree' needs"
    r"|weighting='uniform' needs (a step or n_neighbors|adjust=True or softstep)"
    r"|hidden_layer_sizes must be None with weighting=.* and a step on ranks"
    r"|weighting=.* needs as many training rows"
    r"|n_neighbors must be (None or 'auto' with weighting=|at least n_estimators=)"
    r"|n_neighbors must be at most the number of training rows"
    r"|column .* and categorical_features=.* does not name it"
    r"|column .* which are no categories"
    r"|text_features must name columns of strings"
    r"|text_features of column .* empty vocabulary"
    r"|column .* must be in categorical_features or in text_features, not in both"
    r"|column .* as a category, and float64 represents all integers below 2\^53 only"
    r"|Input X contains infinity or a value too large"
    r"|holds values that differ by \S+ at most, too little to be squared"
)
#: The one error that may come after training has begun.
DIVERGED = re.compile(r"training diverged with learning_rate_init=\S+ and weight_decay=")


def options_of(case):
    """The options of training that a case has."""
    return case.parameters.get("training") or TrainingOptions()


class Fitted:
    """A case, the estimator fitted to it, and its predictions of some queries."""

    def __init__(self, case, estimator, folder):
        self.case, self.estimator, self.folder = case, estimator, folder
        self.ids = estimator.bank_.ids.numpy()
        self.is_classifier = case.kind in CLASSIFIERS
        self.queries = self.draw_queries()
        self.n_queries = np.shape(self.queries)[0]

    def draw_queries(self):
        """Rows that were fitted and, unless an error names why not, rows that were not."""
        seen, table = self.ids[:N_QUERIES], self.case.table
        rows = take(table, [*seen, *range(len(self.case.y), np.shape(table)[0])])
        try:
            self.estimator.transform(rows)
        except (ValueError, TypeError) as error:
            if not REFUSALS.search(str(error)):
                raise
            rows = take(table, seen)
        return rows

    @cached_property
    def predictions(self):
        """Predictions, or probabilities, of the queries, (q, c)."""
        return self.predictions_of(self.estimator, self.queries)

    def predictions_of(self, estimator, X):
        """Predictions, or probabilities of all outputs, (q, c)."""
        if self.is_classifier:
            each = estimator.predict_proba(X)
            return np.hstack(each) if isinstance(each, list) else each
        predictions = estimator.predict(X)
        return predictions.reshape(len(predictions), -1)

    def copy(self):
        """An estimator like this one, to be edited."""
        return pickle.loads(pickle.dumps(self.estimator))

    def rounding(self, share):
        """What may be lost of a share of the predictions' range, and of float64, (c,)."""
        if self.is_classifier:
            return share
        values = self.estimator.bank_.targets.numpy().reshape(len(self.ids), -1)
        values = np.concatenate([values, self.predictions])
        lost = share * np.ptp(values, axis=0) + 16 * np.finfo(float).eps * abs(values).max(axis=0)
        return np.maximum(lost, np.finfo(float).tiny)

    def check_close(self, found, expected, share, left_out=0):
        """Assert that predictions, (q, c), differ by rounding and what is left out, (c,), only."""
        assert found.shape == expected.shape
        excess = abs(found - expected) / (self.rounding(share) + left_out)
        assert excess.max() <= 1, f"{found} differs from {expected}, {excess.max():.3g} times"


# -- invariants of all ---------------------------------------------------------------------


def predictions_are_finite(fitted):
    assert np.isfinite(fitted.predictions).all()


def weights_sum_to_one(fitted):
    weights = fitted.estimator.neighbor_weights(fitted.queries)
    assert (weights.data > 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=EXACT)


def plain_predictions_are_weighted_targets(fitted):
    estimator = fitted.estimator
    adjusts = getattr(estimator._architecture(), "adjusts", False)
    has_trend = estimator.bank_.trend is not None
    if adjusts or has_trend or getattr(estimator, "smoothing", False):
        return
    values = estimator.bank_.targets.numpy().reshape(len(fitted.ids), -1)
    weights = estimator.neighbor_weights(fitted.queries)
    # Unknown levels, which the rare ones are, mix probabilities with the frequencies.
    known = replace(estimator.embed(fitted.queries), added=None)
    fitted.check_close(weights @ values, fitted.predictions_of(estimator, known), ROUNDING)


def heaviest_neighbors_have_the_largest_weights(fitted):
    k = min(3, len(fitted.ids))
    weights, ids = fitted.estimator.heaviest_neighbors(fitted.queries, k)
    dense = fitted.estimator.neighbor_weights(fitted.queries).toarray()
    heaviest = -np.sort(-dense, axis=1)[:, :k]
    np.testing.assert_allclose(weights, heaviest, rtol=0, atol=ROUNDING)
    found = np.take_along_axis(dense, np.searchsorted(fitted.ids, ids), axis=1)
    np.testing.assert_allclose(found, heaviest, rtol=0, atol=ROUNDING)


def explanations_add_up(fitted):
    adjusted = explain(fitted.estimator, fitted.queries).adjusted
    for k in (min(2, len(fitted.ids)), None):
        found = explain(fitted.estimator, fitted.queries, k)
        # Other rows with a negligible weight have no line: their weight goes to the listed rows.
        left_out = NEGLIGIBLE * (np.nanmax(adjusted, axis=0) - np.nanmin(adjusted, axis=0))
        totals = found.totals(found.contributions)
        fitted.check_close(totals, fitted.predictions, ROUNDING, left_out)
        sums = found.totals(found.weights[:, None])
        np.testing.assert_allclose(sums, 1, rtol=0, atol=EXACT)
        table = fitted.estimator.explain(fitted.queries, k)
        added = table.filter(regex="^contribution").to_numpy(dtype=float)
        np.testing.assert_array_equal(added, found.contributions)


def predictions_do_not_depend_on_the_other_queries(fitted):
    alone = [take(fitted.queries, [i]) for i in range(fitted.n_queries)]
    predictions = np.concatenate(
        [fitted.predictions_of(fitted.estimator, query) for query in alone]
    )
    fitted.check_close(predictions, fitted.predictions, ROUNDING)


def embedded_queries_stand_for_rows(fitted):
    embedded = fitted.estimator.embed(fitted.queries)
    np.testing.assert_array_equal(
        fitted.predictions_of(fitted.estimator, embedded), fitted.predictions
    )


def columns_go_by_their_names(fitted):
    names = getattr(fitted.estimator, "feature_names_in_", None)  # if they are strings
    if names is not None:
        turned = fitted.queries[[*names[::-1]]]
        np.testing.assert_array_equal(
            fitted.predictions_of(fitted.estimator, turned), fitted.predictions
        )


def leaving_out_is_removing(fitted):
    encoder = getattr(fitted.estimator, "features_", None)
    if "levels" in getattr(encoder, "encoders_", ()):
        return  # means of levels are other ones for training rows
    trends = [b.trend for b in (fitted.estimator.bank_, trained(fitted.estimator)[1])]
    grouped = fitted.case.groups is not None
    if any(trend is not None and (grouped or not trend.is_solved) for trend in trends):
        return  # a training row has the trend of other folds or groups, a new row that of all
    network = trained(fitted.estimator)[0]
    nested = network is not fitted.estimator.network_
    counts = any(head.counts_admitted for head in heads_of(network.head))
    if nested and counts and not fitted.is_classifier:
        return  # the ranks of a neighbour's neighbours are of all rows
    left_out = fitted.predictions_of(fitted.estimator, None)
    for row in {0, len(fitted.ids) - 1}:
        without = fitted.copy().remove_neighbors(ids=fitted.ids[row])
        # A level may be forgotten with its row, which is encoded before. Rare levels count as
        # unknown in queries, but not in the bank's own rows.
        query = fitted.estimator.embed(take(fitted.case.table, fitted.ids[[row]]))
        query = replace(query, network=without.network_, added=None)
        fitted.check_close(fitted.predictions_of(without, query), left_out[[row]], ROUNDING)


def added_rows_are_removed_without_trace(fitted):
    edited, rows = fitted.copy(), fitted.ids[:2]
    table, y = take(fitted.case.table, rows), take(fitted.case.y, rows)
    if hasattr(table, "iloc"):  # the names of the first rows are taken
        table = table.add_prefix("again ", axis=0)
    added = edited.add_neighbors(table, y)
    assert np.isfinite(fitted.predictions_of(edited, fitted.queries)).all()
    edited.remove_neighbors(ids=added)
    np.testing.assert_array_equal(edited.bank_.ids, fitted.ids)
    fitted.check_close(fitted.predictions_of(edited, fitted.queries), fitted.predictions, ROUNDING)


def pickles_and_files_predict_the_same(fitted):
    path, copies = fitted.folder / "model.safetensors", [fitted.copy()]
    callbacks = options_of(fitted.case).callbacks  # which a file does not hold
    passed = {"training__callbacks": callbacks} if callbacks else {}
    parameter = fitted.case.parameters.get("trend")
    if parameter is not None and not isinstance(parameter, str):  # for too few rows to be fitted
        passed["trend"] = parameter
    trend = fitted.estimator.bank_.trend
    if trend is None or not trend.takes_table:
        nona_sklearn.save(fitted.estimator, path, overwrite=True)
        copies.append(nona_sklearn.load(path, **passed))
    for copy in copies:
        np.testing.assert_array_equal(
            fitted.predictions_of(copy, fitted.queries), fitted.predictions
        )


def a_clone_fits_the_same(fitted):
    again = fitted.case.fit(fitted.case.make())
    np.testing.assert_array_equal(fitted.predictions_of(again, fitted.queries), fitted.predictions)


def sizes_are_those_of_the_bank(fitted):
    n, estimator = len(fitted.ids) * (1 + ROUNDING), fitted.estimator
    sizes = estimator.neighborhood(fitted.queries)
    effective = sizes["effective_n_neighbors"]
    assert ((effective >= 1 - ROUNDING) & (effective <= n)).all()
    assert (effective <= sizes["n_nonzero_weights"] * (1 + ROUNDING)).all()
    has_step = estimator.softstep is not None and estimator.similarity_ != "features"
    assert ("soft_n_neighbors" in sizes) == has_step
    if has_step:
        assert sizes["soft_n_neighbors"].between(0, n).all()


def influence_and_distances_are_finite(fitted):
    table = fitted.estimator.influence(fitted.queries)
    assert np.isfinite(table[["weight", "change"]].to_numpy()).all()
    np.testing.assert_allclose(table["weight"].sum(), fitted.n_queries, rtol=ROUNDING)
    assert np.isfinite(fitted.estimator.neighborhood(fitted.queries)["distance"]).all()


# -- of regressors -------------------------------------------------------------------------


def spreads_and_draws_are_finite(fitted):
    mean, std = fitted.estimator.predict(fitted.queries, return_std=True)
    np.testing.assert_array_equal(mean.reshape(fitted.predictions.shape), fitted.predictions)
    assert (np.isfinite(std) & (std >= 0)).all()
    assert np.isfinite(fitted.estimator.sample_y(fitted.queries, 3)).all()


def nothing_is_beyond_the_bounds(fitted):
    bounds, estimator = fitted.estimator.targets_.bounds, fitted.estimator
    if bounds is None:
        return
    quantiles = estimator.predict_quantiles(fitted.queries, LEVELS)
    draws = estimator.sample_y(fitted.queries, 3)
    adjusted = explain(estimator, fitted.queries).adjusted
    for values in fitted.predictions, quantiles, draws, adjusted:
        assert bounds[0] <= values.min()
        assert values.max() <= bounds[1]


def quantiles_are_those_of_the_cdf(fitted):
    """The least values that are not exceeded with a probability, to float64's rounding."""
    estimator, rounding = fitted.estimator, np.atleast_1d(fitted.rounding(EXACT))
    quantiles = estimator.predict_quantiles(fitted.queries, LEVELS)
    quantiles = quantiles.reshape(fitted.n_queries, len(LEVELS), -1)  # (q, k, c)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=1) >= -rounding).all()
    points = np.stack([quantiles - rounding, quantiles + rounding])
    reached = estimator.predict_cdf(fitted.queries, points.ravel())
    reached = reached.reshape(fitted.n_queries, *points.shape, -1)
    # Of each query and output the points that are its own.
    below, up_to = np.einsum("qaqkcc->aqkc", reached)
    levels = LEVELS[:, None]
    assert (below <= levels + EXACT).all(), f"{below} is below the quantiles of {LEVELS}"
    assert (up_to >= levels - EXACT).all(), f"{up_to} is up to the quantiles of {LEVELS}"


# -- of classifiers ------------------------------------------------------------------------


def probabilities_sum_to_one(fitted):
    each = fitted.estimator.predict_proba(fitted.queries)
    for probabilities in each if isinstance(each, list) else [each]:
        assert (probabilities >= 0).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=0, atol=EXACT)


def labels_are_the_most_probable(fitted):
    estimator = fitted.estimator
    each, classes = estimator.predict_proba(fitted.queries), estimator.classes_
    if not isinstance(each, list):
        each, classes = [each], [classes]
    best = [labels[p.argmax(axis=1)] for p, labels in zip(each, classes, strict=True)]
    found = estimator.predict(fitted.queries).reshape(fitted.n_queries, -1)
    assert found.T.tolist() == [column.tolist() for column in best]


def amounts_add_up(fitted):
    estimator = fitted.estimator
    if getattr(estimator, "similarity_", None) != "features":
        return
    table = estimator.attribute(fitted.queries, of="predictions")
    values = np.stack([np.asarray(table[name]) for name in [*table][1:]], axis=1).astype(float)
    n_parts = estimator.n_features_in_ + 3
    *parts, whole = np.moveaxis(values.reshape(len(values), -1, n_parts), 2, 0)
    size = np.abs([*parts, whole]).max()
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=0, atol=EXACT * size)
    odds = []
    for p in np.split(fitted.predictions, np.cumsum(estimator.targets_.sizes)[:-1], axis=1):
        logs = np.log(p.clip(np.finfo(float).tiny))  # as of a probability of 0
        own = logs[:, 1:] - logs[:, :1] if p.shape[1] == 2 else logs - logs.mean(1, keepdims=True)
        odds.append(own)
    np.testing.assert_allclose(whole, np.hstack(odds), rtol=1e-5, atol=1e-5)
    rows = take(fitted.case.table, range(len(fitted.case.y)))
    pairs = estimator.attribute(fitted.queries, rows, n_neighbors=1)
    for end in estimator.targets_.ends_of_log_odds(estimator.bank_.target_names):
        names = [*pairs]
        start, stop = (names.index(f"{name}_log_odds{end}") for name in ("neighbor", "query"))
        total = sum(np.asarray(pairs[name], dtype=float) for name in names[start:stop])
        np.testing.assert_allclose(total, pairs[names[stop]], rtol=0, atol=EXACT * size)


OF_ALL = (
    predictions_are_finite,
    weights_sum_to_one,
    plain_predictions_are_weighted_targets,
    heaviest_neighbors_have_the_largest_weights,
    explanations_add_up,
    predictions_do_not_depend_on_the_other_queries,
    embedded_queries_stand_for_rows,
    columns_go_by_their_names,
    leaving_out_is_removing,
    added_rows_are_removed_without_trace,
    pickles_and_files_predict_the_same,
    a_clone_fits_the_same,
    sizes_are_those_of_the_bank,
    influence_and_distances_are_finite,
)
OF_REGRESSORS = (
    spreads_and_draws_are_finite,
    nothing_is_beyond_the_bounds,
    quantiles_are_those_of_the_cdf,
)
OF_CLASSIFIERS = (probabilities_sum_to_one, labels_are_the_most_probable, amounts_add_up)


# -- what a fit leaves alone ---------------------------------------------------------------


def state_of_the_process(but_numpy):
    """What is set for the whole process, numpy's generator perhaps left out."""
    numbers = check_random_state(None).get_state(legacy=False)["state"]
    return {
        "random": random.getstate(),
        "numpy": None if but_numpy else (numbers["key"].tobytes(), numbers["pos"]),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "errors": np.geterr(),
        "warnings": [*warnings.filters],
        "configuration": sklearn.get_config(),
    }


def try_case(case, folder):
    """Fit a case and check all that holds then; return how the fit ended."""
    estimator = case.make()
    unfitted = {*vars(estimator)}
    with mock.patch.object(loop, "train_network", wraps=loop.train_network) as training:
        try:
            case.fit(estimator)
        except (ValueError, TypeError) as error:
            # A short training before the others measures how many epochs fit in a time.
            begun = training.called or options_of(case).max_time is not None
            diverged = begun and DIVERGED.search(str(error))
            if not (diverged or (not training.called and REFUSALS.search(str(error)))):
                raise
            assert {*vars(estimator)} == unfitted
            return "diverged" if diverged else "refused"
    fitted = Fitted(case, estimator, folder)
    for invariant in OF_ALL + (OF_CLASSIFIERS if fitted.is_classifier else OF_REGRESSORS):
        invariant(fitted)
    return "fitted"


def try_cases(kind, n_examples, folder):
    """Try random cases of an estimator; return how often fits ended in each way."""
    outcomes = Counter()

    @settings(SETTINGS, max_examples=n_examples)
    @given(cases(kind))
    def every_promise_is_kept(case):
        drawn = case.parameters.get("random_state") is None
        before = state_of_the_process(but_numpy=drawn)
        outcomes[try_case(case, folder)] += 1
        assert state_of_the_process(but_numpy=drawn) == before

    every_promise_is_kept()
    return outcomes


@pytest.mark.first
@pytest.mark.slow
@SILENCED
@EACH
def test_many_random_cases(kind, tmp_path):
    outcomes = try_cases(kind, N_EXAMPLES, tmp_path)
    assert outcomes["fitted"] > outcomes.total() / 2  # or not much is tried
