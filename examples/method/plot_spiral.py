"""
A learned space against a given one: the spiral
===============================================

Points that are near in the plane can be far apart on the spiral. `NONARegressor` learns a space in
which near points have near targets, and averages the training targets there.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

from nona_sklearn import NONARegressor, SurfaceDisplay
from nona_sklearn.datasets import make_plane_regression

X, y = make_plane_regression("spiral", 900, random_state=0)
X_train, X_test, y_train, y_test = X[:600], X[600:], y[:600], y[600:]
models = {
    "5 nearest neighbours": KNeighborsRegressor(),
    "MLPRegressor": MLPRegressor(max_iter=2000, random_state=0),
    "NONARegressor": NONARegressor(n_estimators=1, random_state=0),
}
levels = np.linspace(y.min(), y.max(), 25)
figure, axes = plt.subplots(1, 3, figsize=(14, 3.8), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X_train, y_train)
    styles = {"surface_kwargs": {"levels": levels}, "scatter_kwargs": {"s": 8}}
    SurfaceDisplay.from_estimator(model, X_train, y_train, ax=ax, **styles)
    ax.set_title(f"{name}\nR² {model.score(X_test, y_test):.2f}")
    ax.set_aspect("equal")

# %%
# R² is measured on 300 other points.
