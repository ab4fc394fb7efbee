"""Errors of regressors and classifiers, and how to compare them over several sets."""

import numpy as np
from scipy.stats import friedmanchisquare, studentized_range
from sklearn.metrics import log_loss, roc_auc_score

from .timing import timed


def judge_numbers(model, X, y):
    """Compute the error of a regressor."""
    return {"nrmse": normalised_rmse(model, X, y)}


def score(model, X_train, X_test, y_train, y_test, judge=judge_numbers):
    """Fit on one split: the scores of the test rows by `judge`, and seconds for the fit."""
    seconds = timed(lambda: model.fit(X_train, y_train))
    judgement = judge(model, X_test, y_test)
    return {"n_train": len(y_train), **judgement, "seconds": seconds}


def judge_classes(model, X, y):
    """Score a classifier's probabilities, and how often the most probable class is wrong."""
    # float64 and sums of 1: some work in float32, of which sklearn's log_loss warns.
    proba = np.asarray(model.predict_proba(X), dtype=float)
    proba /= proba.sum(axis=1, keepdims=True)
    classes = model.classes_
    is_class = y[:, None] == classes
    return {
        "n_test": len(y),
        "log_loss": log_loss(y, proba, labels=classes),
        "error": np.mean(classes[proba.argmax(axis=1)] != y),
        # Each class against the rest; of two classes both areas are the same.
        "auc": roc_auc_score(is_class, proba, average="macro"),
        "calibration_error": calibration_error(is_class, proba),
    }


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


def print_seconds(results, sets):
    """Print how long the fits took."""
    print("\nSeconds for a fit")
    print(mean_over_splits(results, "seconds", sets).round(1).to_string())


def critical_difference(n_models, n_sets, alpha=0.05):
    """Smallest difference of mean ranks that the Nemenyi test calls significant."""
    q = studentized_range.ppf(1 - alpha, n_models, np.inf) / np.sqrt(2)
    return q * np.sqrt(n_models * (n_models + 1) / (6 * n_sets))
