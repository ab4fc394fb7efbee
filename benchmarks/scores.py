"""Errors of regressors, and how to compare them over several sets."""

import numpy as np
import pandas as pd
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from .timing import timed


def score(model, X_train, X_test, y_train, y_test):
    """Fit on one split: test RMSE over the test targets' deviation, and seconds for the fit."""
    seconds = timed(lambda: model.fit(X_train, y_train))
    return {
        "n_train": len(y_train),
        "nrmse": normalised_rmse(model, X_test, y_test),
        "seconds": seconds,
    }


def normalised_rmse(model, X, y):
    """Root mean squared error in units of the targets' deviation."""
    return np.sqrt(np.mean((np.ravel(model.predict(X)) - y) ** 2)) / y.std()


def relative_rmse(scores, baseline):
    """Geometric mean over the sets of each model's nRMSE, divided by the baseline's."""
    return np.exp(np.log(scores / scores.loc[baseline]).mean(axis=1))


def print_tables(results, sets, baseline):
    """Print the errors of models on sets, how they rank, and the seconds of their fits.

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
    columns = [name for name in sets if name in set(results.set)]
    scores = results.pivot_table(index="model", columns="set", values="nrmse")[columns]
    seconds = results.pivot_table(index="model", columns="set", values="seconds")[columns]
    everywhere = scores.dropna()
    ranks = pd.Series(rankdata(everywhere, axis=0).mean(axis=1), index=everywhere.index)
    relative = relative_rmse(everywhere, baseline)
    table = scores.round(3).assign(**{"geo. mean": relative.round(3), "rank": ranks.round(2)})
    print("\nnRMSE (lower is better), geometric mean relative to", baseline)
    print(table.sort_values("geo. mean").to_string())
    print("\nSeconds for a fit")
    print(seconds.round(1).to_string())
    if len(columns) > 2:
        p = friedmanchisquare(*everywhere.to_numpy()).pvalue
        cd = critical_difference(*everywhere.shape)
        print(f"\nFriedman p = {p:.2g}; ranks that differ by {cd:.2f} differ significantly (5 %)")
    return scores


def critical_difference(n_models, n_sets, alpha=0.05):
    """Smallest difference of mean ranks that the Nemenyi test calls significant."""
    q = studentized_range.ppf(1 - alpha, n_models, np.inf) / np.sqrt(2)
    return q * np.sqrt(n_models * (n_models + 1) / (6 * n_sets))
