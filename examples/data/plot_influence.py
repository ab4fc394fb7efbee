"""
Find a wrong target by its influence
====================================

`influence` measures the effect of each row on the predictions, without another fit. Of the rows
that were added to the bank one was typed wrong: it stands out.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from nona_sklearn import NONARegressor

X, y = load_diabetes(return_X_y=True, scaled=False)
reg = NONARegressor(n_estimators=1, random_state=0).fit(X[:300], y[:300])
reg.add_neighbors(X[300:330], np.r_[y[300:329], 10 * y[329]])  # new rows, one with a typing error
targets = reg.bank_.targets.numpy()
change = reg.influence()["change"].to_numpy()

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.scatter(targets, change, s=18, color="#0072B2")
ax.annotate(
    "row 329",
    (targets[329], change[329]),
    xytext=(-12, 0),
    textcoords="offset points",
    ha="right",
    va="center",
)
ax.set(
    xlabel="target of a row: progression of diabetes",
    ylabel="change of the predictions without it\n(root mean square, units of the target)",
    title="What each row does to the predictions of the others",
)
