"""
How many rows a prediction needs
================================

Softmax gives every row a little weight. Other weightings give most rows none: few rows are behind
a prediction, and you can look at all of them.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.metrics import root_mean_squared_error

from nona_sklearn import NONARegressor

X, y = load_diabetes(return_X_y=True, scaled=False)
X_train, X_test, y_train, y_test = X[:300], X[300:], y[:300], y[300:]

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
markers = {"softmax": "o", "sparse_softmax": "s", "entmax": "^", "sparsemax": "D"}
for weighting, marker in markers.items():
    reg = NONARegressor(weighting=weighting, n_estimators=1, random_state=0)
    reg.fit(X_train, y_train)
    n_rows = reg.n_nonzero_weights(X_test).mean()
    error = root_mean_squared_error(y_test, reg.predict(X_test))
    ax.scatter(n_rows, error, marker=marker, s=70, label=weighting)
ax.set_xscale("log")
ax.set(
    xlabel="rows that weigh more than 0, mean over the test rows",
    ylabel="root mean squared error of the progression",
    title="Diabetes: rows behind a prediction, and error",
)
ax.legend(title="weighting", loc="center left", bbox_to_anchor=(1.01, 0.5))

# %%
# Differences of a few per cent are chance on 142 test rows.
