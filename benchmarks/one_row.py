"""One row of a table at a time: milliseconds of a call, beside those of gradient boosting.

The row is a frame, a Series or a dict of 30 columns. Rows are added to a bank of 5,000, so that
a large one takes minutes rather than hours.
"""

import time
import warnings

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning

from nona_sklearn import NONARegressor

from .timing import threads

N_FITTED, N_ADDED_AT_ONCE = 5000, 50_000
LEVELS = [3, 4, 5, 6, 7, 8, 9, 10]  # of the categories
#: Banks: the number of calls, and the most milliseconds of a prediction.
LIMITS = {5000: (1000, 3.0), 200_000: (200, 10.0)}
MOST_OF_BOOSTING = 1.5  # times a call of boosting
MOST_OF_PREDICT = 2.0  # times a prediction, of quantiles and explanations


def make_table(n_rows, seed):
    """A table of 20 numbers with gaps, 8 categories, a date and a boolean; its targets."""
    generator = np.random.default_rng(seed)
    numbers = generator.standard_normal((n_rows, 20))
    codes = generator.integers(0, LEVELS, (n_rows, len(LEVELS)))
    y = numbers[:, 0] + np.sin(2 * numbers[:, 1]) + numbers[:, 2] * numbers[:, 3]
    y += 0.1 * (codes % 3).sum(axis=1) + 0.1 * generator.standard_normal(n_rows)
    gaps = generator.random((n_rows, 20)) < 0.1 * (np.arange(20) % 4 == 0)
    columns = {f"number {j}": np.where(gaps[:, j], np.nan, numbers[:, j]) for j in range(20)}
    columns |= {f"category {j}": [f"level {i}" for i in c] for j, c in enumerate(codes.T)}
    days = generator.integers(0, 3000, n_rows)
    columns["date"] = pd.Timestamp("2015-01-01") + pd.to_timedelta(days, "D")
    columns["flag"] = generator.random(n_rows) < 0.5
    return pd.DataFrame(columns), y


def for_boosting(X, categories):
    """The table with levels of a category type, and days as numbers."""
    days = (X["date"] - pd.Timestamp("2015-01-01")).dt.days
    return X.astype(categories).assign(date=days)


def fit(n_rows, quick):
    """A regressor with a bank of so many rows, and gradient boosting."""
    X, y = make_table(n_rows, seed=0)
    first = min(N_FITTED, n_rows)
    few = {"n_estimators": 1, "max_iter": 1} if quick else {"max_iter": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reg = NONARegressor(random_state=0, **few).fit(X[:first], y[:first])
    for start in range(first, n_rows, N_ADDED_AT_ONCE):
        rows = slice(start, start + N_ADDED_AT_ONCE)
        reg.add_neighbors(X[rows], y[rows])
    names = [name for name in X if name.startswith("category")]
    categories = {name: pd.CategoricalDtype(sorted(X[name].unique())) for name in names}
    boosting = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    return reg, boosting.fit(for_boosting(X[:first], categories), y[:first]), categories


def measure(calls, n_turns):
    """Median milliseconds of each call, which takes the number of a row, in turns."""
    times = {name: [] for name in calls}
    for i in range(-5, n_turns):  # the first ones make what later ones use
        for name, call in calls.items():
            start = time.process_time()
            call(i % n_turns)
            times[name].append(1000 * (time.process_time() - start))
    return {name: float(np.median(values[5:])) for name, values in times.items()}


def run(args):
    """Measure all calls in turns, print, check the limits."""
    banks = [400] if args.quick else [*LIMITS]
    queries = make_table(5 if args.quick else 1000, seed=1)[0]
    inputs = {
        "frame": [queries.iloc[[i]] for i in range(len(queries))],
        "Series": [queries.iloc[i] for i in range(len(queries))],
        "dict": queries.to_dict("records"),
    }
    failed = []
    print(f"{'rows':>8s}  {'method':20s}{'input':8s}{'ms':>8s}{'of boosting':>13s}")
    for n_rows in banks:
        n_turns, most = LIMITS.get(n_rows, (len(queries), None))
        reg, boosting, categories = fit(n_rows, args.quick)
        of_boosting = for_boosting(queries, categories)
        of_boosting = [of_boosting.iloc[[i]] for i in range(len(queries))]
        calls = {("boosting", "frame"): lambda i, b=boosting, X=of_boosting: b.predict(X[i])}
        for method in ("predict", "predict_quantiles", "explain"):
            answer = getattr(reg, method)
            for name, rows in inputs.items():
                calls[method, name] = lambda i, answer=answer, rows=rows: answer(rows[i])
        with threads(1):
            medians = measure(calls, n_turns)
        unit = medians["boosting", "frame"]
        for (method, name), median in medians.items():
            print(f"{n_rows:8d}  {method:20s}{name:8s}{median:8.2f}{median / unit:13.2f}")
        if args.quick:
            continue
        for name in inputs:
            predict = medians["predict", name]
            others = [medians[method, name] for method in ("predict_quantiles", "explain")]
            is_slow = predict > most or predict > MOST_OF_BOOSTING * unit
            if is_slow or max(others) > MOST_OF_PREDICT * predict:
                failed.append((n_rows, name))
    assert not failed, failed
