"""Errors of regressors and classifiers, and how to compare them over several sets."""

import numpy as np
from scipy.stats import friedmanchisquare, studentized_range
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import Pipeline

from .timing import timed

ALL_ROWS = "NONA, n_neighbors=None"  # the papers' estimator: every row of the bank has weight
#: Columns that describe the weights behind a prediction, and the titles of their tables.
WEIGHTS = {
    "n_nonzero_weights": "Rows with weight",
    "effective_n_neighbors": "Effective number of neighbours, 1 / sum of squared weights",
    "perplexity": "Perplexity of the weights",
}
N_WEIGHED = 1000  # test rows whose weights are described


def judge_numbers(model, X, y):
    """Compute the error of a regressor."""
    return {"nrmse": normalised_rmse(model, X, y)}


def score(model, X_train, X_test, y_train, y_test, judge=judge_numbers):
    """Fit on one split: the scores of the test rows by `judge`, and seconds for the fit."""
    seconds = timed(lambda: model.fit(X_train, y_train))
    judgement = judge(model, X_test, y_test)
    weights = describe_weights(model, X_test[:N_WEIGHED])
    return {"n_train": len(y_train), **judgement, "seconds": seconds, **weights}


def describe_weights(model, X):
    """Compute :data:`WEIGHTS` of a fitted estimator of ours: medians over queries.

    Parameters
    ----------
    model : estimator
        If it is a pipeline, its last step counts.
    X : array-like of shape (n_queries, n_features)
        Queries.

    Returns
    -------
    dict of str to float
        Empty for other estimators.
    """
    if isinstance(model, Pipeline):
        X, model = model[:-1].transform(X), model[-1]
    if not hasattr(model, "neighbor_weights"):
        return {}
    weights = model.neighbor_weights(X)
    numbers = (
        np.diff(weights.indptr),
        1 / weights.power(2).sum(axis=1),
        perplexity(weights),
    )
    return {name: float(np.median(each)) for name, each in zip(WEIGHTS, numbers, strict=True)}


def perplexity(weights):
    """Exponential of the entropy of each row's weights.

    Parameters
    ----------
    weights : sparse CSR array of shape (n_queries, n_neighbors)
        Each row sums to 1.

    Returns
    -------
    ndarray of shape (n_queries,)
        k, if k weights are equal and the others 0.
    """
    logs = weights.copy()
    logs.data = np.log(logs.data)
    return np.exp(-weights.multiply(logs).sum(axis=1))


def judge_classes(model, X, y):
    """Score a classifier's probabilities, and how often the most probable class is wrong."""
    proba, classes = probabilities(model, X), model.classes_
    is_class = y[:, None] == classes
    return {
        "n_test": len(y),
        "log_loss": log_loss(y, proba, labels=classes),
        "error": np.mean(classes[proba.argmax(axis=1)] != y),
        # Each class against the rest; of two classes both areas are the same.
        "auc": roc_auc_score(is_class, proba, average="macro"),
        "calibration_error": calibration_error(is_class, proba),
    }


def probabilities(model, X):
    """Compute probabilities in float64 that sum to 1; of others scikit-learn's log_loss warns."""
    proba = np.asarray(model.predict_proba(X), dtype=float)
    return proba / proba.sum(axis=1, keepdims=True)


def calibration_error(is_class, proba, n_bins=15):
    """Expected calibration error of the most probable class, in bins of equal width.

    Parameters
    ----------
    is_class : bool array of shape (n_rows, n_classes)
        Which class is true.
    proba : array of shape (n_rows, n_classes)
        Predicted probability of each class.
    n_bins : int, default=15
        Number of bins of the largest probability, from 0 to 1.

    Returns
    -------
    float
        Mean over the rows of their bin's distance of mean probability and share of hits.
    """
    top = proba.argmax(axis=1)
    rows = np.arange(len(top))
    surplus = proba[rows, top] - is_class[rows, top]
    bins = np.ceil(proba[rows, top] * n_bins).astype(int)
    return np.abs(np.bincount(bins, weights=surplus)).sum() / len(top)


def normalised_rmse(model, X, y):
    """Root mean squared error in units of the targets' deviation."""
    return np.sqrt(np.mean((np.ravel(model.predict(X)) - y) ** 2)) / y.std()


def crps(quantiles, y, levels):
    """Continuous ranked probability score: twice the mean pinball loss of quantiles (n, k)."""
    errors = y[:, None] - quantiles
    return 2 * np.mean(np.maximum(levels * errors, (levels - 1) * errors))


def relative_error(scores, baseline):
    """Geometric mean over the sets of each model's error, divided by the baseline's."""
    return np.exp(np.log(scores / scores.loc[baseline]).mean(axis=1))


def mean_over_splits(results, column, sets):
    """Average one column of the results: models by sets, those that were run, in their order."""
    run = [name for name in sets if name in set(results.set)]
    return results.pivot_table(index="model", columns="set", values=column)[run]


def is_complete(scores, sets):
    """Whether models have scores on all sets."""
    return bool(scores.reindex(columns=list(sets)).notna().all(axis=None))


def print_ranked(name, scores, baseline, added=0):
    """Print errors, their geometric means and how they rank; those run everywhere have both.

    Parameters
    ----------
    name : str
        What the errors are called.
    scores : DataFrame
        Errors, models by sets.
    baseline : str
        The model whose errors the geometric means are relative to.
    added : float or Series, default=0
        What to add to errors, on every set or on each, before the means, if some are 0.
    """
    everywhere = scores.dropna()
    relative = relative_error(everywhere + added, baseline)
    # Rounded, as means of the same errors in another order differ in the last digits.
    ranks = everywhere.round(12).rank().mean(axis=1)
    table = scores.round(3).assign(**{"geo. mean": relative.round(3), "rank": ranks.round(2)})
    print(f"\n{name} (lower is better), geometric mean relative to {baseline}")
    print(table.sort_values("geo. mean").to_string())
    if scores.shape[1] > 2 and len(everywhere) > 2:
        p = friedmanchisquare(*everywhere.to_numpy()).pvalue
        cd = critical_difference(*everywhere.shape)
        print(f"Friedman p = {p:.2g}; ranks that differ by {cd:.2f} differ significantly (5 %)")


def print_tables(results, sets, baseline):
    """Print the errors of regressors on sets, how they rank, and the seconds of their fits.

    Parameters
    ----------
    results : DataFrame
        Columns set, model, nrmse and seconds.
    sets : iterable of str
        The order of the sets; those without results are left out.
    baseline : str
        The model whose errors the geometric means are relative to.

    Returns
    -------
    DataFrame
        The mean normalised RMSE, models by sets.
    """
    scores = mean_over_splits(results, "nrmse", sets)
    print_ranked("nRMSE", scores, baseline)
    print_seconds(results, sets)
    return scores


def print_weights(results, sets):
    """Print :data:`WEIGHTS` of the models that have weights, and their medians over the sets."""
    for column, title in WEIGHTS.items():
        if column not in results:  # a file that was written before they were
            continue
        table = mean_over_splits(results.dropna(subset=column), column, sets)
        print(f"\n{title}, median over test rows")
        print(table.assign(median=table.median(axis=1)).round(1).to_string())


def compare_with_all_rows(results, column, sets):
    """Print what the end of the weights changes: an error, and the rows behind a prediction.

    Parameters
    ----------
    results : DataFrame
        Columns set, model, seed, `column` and those of :data:`WEIGHTS`.
    column : str
        The error.
    sets : iterable of str
        The sets that count.

    Returns
    -------
    ratio : float
        Error of NONA relative to :data:`ALL_ROWS`, see :func:`paired_ratio`.
    chance : float
        Its standard error.
    n_rows : float
        Rows with weight in NONA's predictions: median over test rows, and then over sets.
    """
    results = results[results.set.isin(sets)]
    ratio, chance = paired_ratio(results, column, "NONA", ALL_ROWS)
    n_rows = mean_over_splits(results, "n_nonzero_weights", sets).T["NONA"].median()
    print(f"NONA / {ALL_ROWS}: {ratio:.4f}, standard error {chance:.4f}; {n_rows:.0f} rows")
    return ratio, chance, n_rows


def paired_ratio(results, column, name, other):
    """Error of a model relative to another's on the same splits, and what chance does to it.

    Parameters
    ----------
    results : DataFrame
        Columns set, model, seed and `column`.
    column : str
        The error.
    name, other : str
        The models; splits count on which both were run.

    Returns
    -------
    ratio : float
        Geometric mean over the splits of a set, and then over the sets.
    chance : float
        Its standard error. The sets are given; splits and initial weights are random.
    """
    errors = results.pivot_table(index=["set", "seed"], columns="model", values=column)
    of_sets = np.log(errors[name] / errors[other]).dropna().groupby("set")
    ratio = np.exp(of_sets.mean().mean())
    variance = (of_sets.var() / of_sets.count()).mean() / len(of_sets)
    return ratio, ratio * np.sqrt(variance)


def print_seconds(results, sets):
    """Print how long the fits took."""
    print("\nSeconds for a fit")
    print(mean_over_splits(results, "seconds", sets).round(1).to_string())


def critical_difference(n_models, n_sets, alpha=0.05):
    """Smallest difference of mean ranks that the Nemenyi test calls significant."""
    q = studentized_range.ppf(1 - alpha, n_models, np.inf) / np.sqrt(2)
    return q * np.sqrt(n_models * (n_models + 1) / (6 * n_sets))
