"""
Compress the bank: what it costs
================================

Predictions look at every row of the bank. `compress` keeps the rows that carry the others' weight.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from nona_sklearn import NONARegressor
from nona_sklearn.datasets import make_plane_regression

X, y = make_plane_regression("rings", 2500, noise=0.1, random_state=0)
X_train, X_test, y_train, y_test = X[:1500], X[1500:], y[:1500], y[1500:]
reg = NONARegressor(n_estimators=1, random_state=0).fit(X_train, y_train)
sizes = [1500, 750, 375, 150]
errors = {"compress": [], "random rows": []}
rng = np.random.default_rng(0)
for size in sizes:
    fewer, random = copy.deepcopy(reg), copy.deepcopy(reg)
    if size < len(X_train):
        fewer.compress(size)
        random.remove_neighbors(ids=rng.choice(len(X_train), len(X_train) - size, replace=False))
    for name, model in zip(errors, (fewer, random), strict=True):
        errors[name].append(root_mean_squared_error(y_test, model.predict(X_test)))

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
styles = {
    "compress": {"marker": "o", "color": "#0072B2"},
    "random rows": {"marker": "s", "color": "0.5"},
}
for name, values in errors.items():
    ax.plot(sizes, values, label=name, **styles[name])
ax.set_xscale("log")
ax.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
ax.minorticks_off()
ax.set(
    xlabel="rows of the bank", ylabel="root mean squared error", title="Fewer rows, larger errors"
)
ax.legend()
