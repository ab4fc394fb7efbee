"""
How weights fall with distance
==============================

A weighting turns distances to the neighbours into weights. With softmax every row has some weight,
with sparse weightings distant rows have none, and uniform weights ignore the distance. Here five
of them weigh the same 30 neighbours.
"""

import matplotlib.pyplot as plt
import numpy as np

from nona_sklearn import WeightingDisplay

names = ["softmax", "gaussian", "sparse_softmax", "sparsemax", "uniform"]
figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
display = WeightingDisplay.from_weightings(names, np.linspace(0, 3, 30), ax=ax)
ax.set(title="Weights of 30 neighbours at growing distances", xlabel="distance of a neighbour")
# sphinx_gallery_start_ignore
figure.set_label(
    "Weight against distance for five weightings. Softmax, Gaussian and sparse softmax fall "
    "slowly, sparse softmax to 0 behind a certain neighbour; sparsemax gives weight to the "
    "nearest neighbours only; uniform is a horizontal line."
)
# sphinx_gallery_end_ignore

# %%
# The scale of the weights is logarithmic, and a dot marks the last neighbour with a weight.
# Softmax, the default, falls with the distance and never ends; a cut after ``n_neighbors`` rows
# ends it. Gaussian weights are larger for neighbours at a small distance and smaller for distant
# ones. Sparse softmax and sparsemax give no weight to distant rows by themselves; sparsemax keeps
# very few.
#
# More on weightings, and which to choose: :doc:`/tune`.
