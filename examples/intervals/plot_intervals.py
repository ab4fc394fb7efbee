"""
A calibrated interval
=====================

The same fit that predicts gives a distribution. Its 90 % interval should hold nine of ten targets
that it has not seen.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from nona_sklearn import IntervalDisplay, NONARegressor

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
y = y.rename("progression of diabetes")
reg = NONARegressor(n_estimators=1, random_state=0).fit(X[:350], y[:350])

low, high = reg.predict_quantiles(X[350:], [0.05, 0.95]).T
inside = ((low <= y[350:]) & (y[350:] <= high)).mean()
figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
IntervalDisplay.from_estimator(reg, X[350:], y[350:], confidence=0.9, ax=ax)
ax.set_title(f"Diabetes: {inside:.0%} of 92 new targets lie inside")
