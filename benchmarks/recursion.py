"""Forecasts of 24 hours by recursion: each hour's forecast is a lag of the next one's.

Temperatures at Newark, in degrees Fahrenheit, from those of the last 24 hours, the hour of the day
and the pressure. Models at their defaults, and a tuned ridge regression.
"""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._testing import ignore_warnings

from nona_sklearn import NONARegressor

from .real_data import _rdataset

LAGS, HOURS = 24, 24
N_TRAIN, N_TEST, BETWEEN = 2000, 2400, 72  # hours, those of the test and from start to start
FIRST = (3000, 4000, 4350, 5600)  # hours that tests begin with: May, June, July, August
BASELINE, OURS = "HistGradientBoosting", "NONA, times"


def temperatures():
    """Features of each hour, temperatures and times."""
    frame = _rdataset("nycflights13/weather")
    frame = frame[frame.origin == "EWR"].dropna(subset=["temp", "pressure"])
    frame = frame.assign(time=pd.to_datetime(frame[["year", "month", "day", "hour"]]))
    frame = frame.drop_duplicates("time").set_index("time").asfreq("h")
    return lagged(frame[["temp", "pressure"]].interpolate(limit=6))


def made_up():
    """Two hundred hours of a daily wave, for quick runs."""
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    noise = np.random.default_rng(0).normal(size=200)
    return lagged(pd.DataFrame({"temp": 10 * np.sin(hours.hour / 24 * 2 * np.pi) + noise}, hours))


def lagged(frame):
    """Columns of lags, the hour and what else there is; targets and times."""
    lags = {f"lag_{lag}": frame.temp.shift(lag) for lag in range(1, LAGS + 1)}
    others = frame.drop(columns="temp")
    X = pd.DataFrame({**lags, "hour": frame.index.hour.astype(float), **others})
    known = X.notna().all(axis=1) & frame.temp.notna()
    return X[known].reset_index(drop=True), frame.temp[known].to_numpy(), frame.index[known]


def recursive(model, X, starts):
    """Forecasts of some hours from each start, (n_starts, HOURS)."""
    lags, forecasts = X.iloc[starts, :LAGS].to_numpy(), []
    for hour in range(HOURS):
        rows = X.iloc[starts + hour].copy()
        rows.iloc[:, :LAGS] = lags
        forecasts.append(model.predict(rows))
        lags = np.column_stack([forecasts[-1], lags[:, :-1]])
    return np.column_stack(forecasts)


def measure(X, y, times, first, n_train, n_test):
    """Mean absolute errors of each model, one hour ahead and of the recursion."""
    train, test = np.arange(first - n_train, first), np.arange(first, first + n_test)
    starts = test[: -HOURS + 1 : BETWEEN]
    truth = y[starts[:, None] + np.arange(HOURS)]
    models = {
        BASELINE: HistGradientBoostingRegressor(random_state=0),
        "ridge, tuned": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
        "NONA": NONARegressor(random_state=0),
        OURS: NONARegressor(random_state=0),
    }
    for name, model in models.items():
        model.fit(X.iloc[train], y[train], **({"times": times[train]} if name == OURS else {}))
        one = np.abs(model.predict(X.iloc[test]) - y[test]).mean()
        error = np.abs(recursive(model, X, starts) - truth).mean()
        yield {"model": name, "first": first, "one hour": one, f"{HOURS} hours": error}


@ignore_warnings(category=UserWarning)  # without times, of a time series
def run(args):
    """Measure, print, check the claims."""
    table, sizes, firsts = temperatures, (N_TRAIN, N_TEST), FIRST
    if args.quick:
        table, sizes, firsts = made_up, (60, 80), [80]
    X, y, times = table()
    rows = [row for first in firsts for row in measure(X, y, times, first, *sizes)]
    results = pd.DataFrame(rows).pivot(index="model", columns="first")
    print("Mean absolute error of temperatures, by the first hour of the test")
    print(results.round(2).to_string())
    relative = np.log(results / results.loc[BASELINE]).T.groupby(level=0).mean().T
    print(f"\nGeometric mean of the error relative to {BASELINE}")
    print(np.exp(relative).round(3).to_string())
    if not args.quick:
        assert (results["one hour"].loc[OURS] < results["one hour"].loc[BASELINE]).all()
