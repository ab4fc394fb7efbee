"""
How weights fall with distance
==============================

A weighting turns distances to the neighbours into weights. With softmax every row has some weight,
with sparse weightings distant rows have none, and uniform weights ignore the distance. Here five
of them weigh the same 30 neighbours.
"""

import matplotlib.pyplot as plt
import torch

from nona_sklearn import NONAHead

distances = torch.linspace(0, 3, 30)
query, neighbors = torch.zeros(1, 30), distances.diag()  # each in a direction of its own
names = ["softmax", "gaussian", "sparse_softmax", "sparsemax", "uniform"]
figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for name in names:
    head = NONAHead("l2", weighting=name, n_neighbors=30)
    weights = head.neighbor_weights(query, neighbors).detach()[0]
    positive = weights > 0
    ax.plot(distances[positive], weights[positive], marker="o", markevery=[-1], label=name)
ax.set(xlabel="distance of a neighbour", ylabel="weight", yscale="log")
ax.set_title("Weights of 30 neighbours at growing distances")
ax.legend()
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
