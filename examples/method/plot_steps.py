"""
Learn the number of neighbours
==============================

k-NN has a fixed number of neighbours. :class:`~nona_sklearn.SoftStepKNeighborsRegressor` learns
how many of them to keep by gradient descent: a step that falls from 1 to 0 with the rank of a
neighbour. Two data sets differ in the noise of their targets only.
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
    n_rows = knn.neighborhood(X)["soft_n_neighbors"].mean()
    ax.set_xlim(0.95, 1)
    ax.set_title(f"noise {noise}: about {n_rows:.0f} of 500 neighbors")
    ax.set_ylabel("")
axes[0].set_ylabel("share of its weight that a neighbour keeps")
# sphinx_gallery_start_ignore
figure.set_label(
    "The learned step against the rank of a neighbour for two amounts of noise. With little noise "
    "only the nearest two of 500 rows keep their weight; with much noise nine do."
)
# sphinx_gallery_end_ignore

# %%
# Only the nearest 5 % of the rows are drawn. With little noise two neighbours suffice. With much
# noise an average over more of them is better, and training has found this from the data.
#
# More on the step: :doc:`/method`.
