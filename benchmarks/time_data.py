"""Tables with a time: what was known when each row was predicted, its time, and five folds.

Lags and the calendar are columns of every table. A naive forecast is the target one season ago.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from .real_data import _rdataset

N_FOLDS = 5
MAX_TRAIN = 6000


@dataclass(frozen=True)
class Series:
    """A table with a time.

    Parameters
    ----------
    X : DataFrame of shape (n, n_features)
        Features, known before the target.
    y : ndarray of shape (n,)
        Targets.
    times : ndarray of shape (n,)
        Time of each row, ascending.
    naive : ndarray of shape (n,)
        Forecasts without a model: the target one season ago, or now.
    """

    X: pd.DataFrame
    y: np.ndarray
    times: np.ndarray
    naive: np.ndarray

    def folds(self, n_folds=N_FOLDS):
        """Yield training and test rows: tests are equal shares of the second half of the times.

        Training rows are the last :data:`MAX_TRAIN` of all that are earlier, of three moments at
        least: of few moments, there are fewer folds.
        """
        moments = np.unique(self.times)
        n_folds = min(n_folds, len(moments) - 3)
        first = min(len(moments) // 2, len(moments) - n_folds)
        starts = np.linspace(first, len(moments), n_folds + 1).astype(int)
        for start, stop in pairwise(starts):
            train = np.flatnonzero(self.times < moments[start])[-MAX_TRAIN:]
            test = (self.times >= moments[start]) & (self.times <= moments[stop - 1])
            yield train, np.flatnonzero(test)


def _series(frame, target, times, naive):
    """Sort a frame by its times, without rows that lack a target or its naive forecast."""
    frame = frame.assign(_time=times, _naive=naive)
    frame = frame.dropna(subset=[target, "_naive"])
    frame = frame.sort_values("_time", kind="stable").reset_index(drop=True)
    special = {name: frame.pop(name).to_numpy() for name in (target, "_time", "_naive")}
    y = special[target].astype(float)
    return Series(frame, y, special["_time"], special["_naive"].astype(float))


def _lags(values, *lags):
    return {f"lag_{lag}": values.shift(lag) for lag in lags}


def _calendar(dates):
    """Columns of the calendar."""
    return {
        "month": dates.dt.month,
        "day_of_week": dates.dt.day_name(),
        "day_of_year": dates.dt.dayofyear,
    }


def _chicago():
    """Daily riders of one station; those of 20 stations, its own too, two weeks before."""
    frame = _rdataset("modeldata/Chicago")
    dates = pd.to_datetime(frame.pop("date"))
    frame = frame.assign(**_lags(frame.ridership, 14, 21, 28), **_calendar(dates))
    return _series(frame, "ridership", dates, frame.lag_14)


def _weather():
    """Mean temperature of the next day in five cities."""
    frame = _rdataset("mosaicData/Weather")
    frame["date"] = pd.to_datetime(frame.date)
    frame = frame.sort_values(["city", "date"], kind="stable").reset_index(drop=True)
    of_city = frame.groupby("city").avg_temp
    yesterday, target, naive = of_city.shift(1), of_city.shift(-1), frame.avg_temp
    frame = frame.assign(target=target, lag_1=yesterday, **_calendar(frame.date))
    dates = frame.pop("date")
    return _series(frame.drop(columns=["year", "day"]), "target", dates, naive)


def _births():
    """Daily births in the United States, a week ahead."""
    frame = _rdataset("mosaicData/Births")
    dates = pd.to_datetime(frame.date)
    lags = _lags(frame.births, 7, 8, 14, 21, 28, 364)
    frame = frame[["births", "day_of_month"]].assign(**lags, **_calendar(dates))
    return _series(frame, "births", dates, frame.lag_7)


def _emissions():
    """Hourly nitrogen oxides at a motorway, a day ahead; emissions and wind are known."""
    frame = _rdataset("robustbase/NOxEmissions")
    hours = pd.Series(np.arange(len(frame)))
    lags = _lags(frame.LNOx, 24, 25, 48)
    frame = frame.drop(columns="julday").assign(hour=hours % 24, **lags)
    return _series(frame, "LNOx", hours, frame.lag_24)


def _wages():
    """Wages of 545 men in eight years, by those of the years before."""
    frame = _rdataset("plm/Males").sort_values(["nr", "year"], kind="stable")
    of_man = frame.groupby("nr").wage
    frame = frame.assign(lag_1=of_man.shift(1), lag_2=of_man.shift(2))
    years, naive = frame.year.astype(int), frame.lag_1
    return _series(frame.drop(columns=["nr", "year"]), "wage", years, naive)


def _economics():
    """Monthly change of unemployment in the United States, in thousands, a month ahead.

    Levels have a trend: the highest of the last years are far above all before.
    """
    frame = _rdataset("ggplot2/economics")
    dates = pd.to_datetime(frame.date)
    change = frame.unemploy.diff()
    known = frame[["psavert", "uempmed", "unemploy"]].shift(1)
    growth = frame[["pce", "pop"]].pct_change().shift(1).add_prefix("growth_of_")
    frame = known.join(growth).assign(change=change, month=dates.dt.month)
    frame = frame.assign(**_lags(change, 1, 2, 3, 6, 12))
    return _series(frame, "change", dates, 0.0)


def _airports():
    """Temperature at three airports, six hours ahead."""
    frame = _rdataset("nycflights13/weather")
    hours = pd.to_datetime(frame.pop("time_hour"), utc=True)
    frame = frame.assign(_hour=hours).sort_values(["origin", "_hour"], kind="stable")
    of_airport = frame.groupby("origin").temp
    lags = {f"lag_{lag}": of_airport.shift(lag) for lag in (1, 3, 18)}
    frame = frame.assign(target=of_airport.shift(-6), **lags)
    hours = frame.pop("_hour")
    frame = frame.drop(columns=["year", "day"])
    return _series(frame, "target", hours.dt.tz_localize(None), frame.lag_18)


def random_walk(n_rows=300):
    """A walk, for quick runs."""
    steps = np.random.RandomState(0).normal(size=n_rows).cumsum()
    values = pd.Series(steps)
    frame = pd.DataFrame({"value": values, **_lags(values, 1, 2)})
    return _series(frame, "value", pd.Series(np.arange(n_rows)), values.shift(1))


#: Tables on which defaults were chosen.
DEVELOPMENT = {
    "chicago": _chicago,
    "weather": _weather,
    "births": _births,
    "emissions": _emissions,
    "wages": _wages,
    "economics": _economics,
}
#: Tables on which nothing was chosen.
KEPT_ASIDE = {"airports": _airports}
