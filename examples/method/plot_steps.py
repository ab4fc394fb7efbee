"""
Learn how many neighbours count
===============================

SoftStep learns which share of the rows counts: a k that training can move. Here the step is read
from two regressors: with more noise in the targets, more rows count. Only the nearest 5 % of the
rows are drawn.
"""

import matplotlib.pyplot as plt

from nona_sklearn import SoftStepKNeighborsRegressor, StepDisplay
from nona_sklearn.datasets import make_plane_regression

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, noise in zip(axes, (0.05, 1.0), strict=True):
    X, y = make_plane_regression("rings", 500, noise=noise, random_state=0)
    knn = SoftStepKNeighborsRegressor(
        weighting="uniform", learn_feature_weights=False, max_iter=1000, random_state=0
    ).fit(X, y)
    StepDisplay.from_estimator(knn, ax=ax)
    n_rows = knn.soft_n_neighbors(X).mean()
    ax.set_xlim(0.95, 1)
    ax.set_title(f"noise {noise}: about {n_rows:.0f} of 500 rows count")
    ax.set_ylabel("")
axes[0].set_ylabel("share of its weight that a neighbour keeps")
