"""
Add rows without training
=========================

Predictions are poor in a region without training rows. Rows from it that are added to the bank
help at once: nothing is trained.
"""

import matplotlib.pyplot as plt
from sklearn.metrics import root_mean_squared_error

from nona_sklearn import NONARegressor
from nona_sklearn.datasets import make_plane_regression

X, y = make_plane_regression("rings", 2000, random_state=0)
corner = (X[:, 0] > 0.2) & (X[:, 1] > 0.2)
X_old, y_old = X[~corner][:800], y[~corner][:800]
X_new, y_new = X[corner], y[corner]
X_test, y_test = X_new[200:], y_new[200:]

reg = NONARegressor(n_estimators=1, random_state=0).fit(X_old, y_old)
numbers, errors = [0], [root_mean_squared_error(y_test, reg.predict(X_test))]
for start in range(0, 200, 20):
    reg.add_neighbors(X_new[start : start + 20], y_new[start : start + 20])
    numbers.append(start + 20)
    errors.append(root_mean_squared_error(y_test, reg.predict(X_test)))

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(numbers, errors, marker="o", color="#0072B2")
ax.set(
    xlabel="rows of the new region in the bank",
    ylabel="root mean squared error there",
    title="A region that training did not see",
)
ax.set_ylim(bottom=0)
