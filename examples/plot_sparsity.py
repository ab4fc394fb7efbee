"""
How many rows a prediction needs
================================

The prediction is the mean of a few rows by default: `n_neighbors='auto'` is the smallest number
whose validation loss is within chance of the best. You can look at all of them.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.metrics import root_mean_squared_error

from nona_sklearn import NONARegressor

X, y = load_diabetes(return_X_y=True, scaled=False)
X_train, X_test, y_train, y_test = X[:300], X[300:], y[:300], y[300:]

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
markers = {5: "v", 15: "<", 50: "s", None: "o", "auto": "*"}
for n_neighbors, marker in markers.items():
    reg = NONARegressor(n_neighbors=n_neighbors, n_estimators=3, random_state=0)
    reg.fit(X_train, y_train)
    n_rows = reg.n_nonzero_weights(X_test).mean()
    error = root_mean_squared_error(y_test, reg.predict(X_test))
    size = 200 if n_neighbors == "auto" else 60
    ax.scatter(n_rows, error, marker=marker, s=size, label=repr(n_neighbors))
ax.set_xscale("log")
ax.set(
    xlabel="rows that weigh more than 0, mean over the test rows",
    ylabel="root mean squared error of the progression",
    title="Diabetes: rows behind a prediction, and error",
)
ax.legend(title="n_neighbors", loc="center left", bbox_to_anchor=(1.01, 0.5))

# %%
# Differences of a few per cent are chance on 142 test rows.
