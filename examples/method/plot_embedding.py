"""
The learned space
=================

Before, the two main directions of the features; after, those of the space in which `NONARegressor`
compares rows. In the learned space neighbours have similar targets.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import NONARegressor

X, y = load_diabetes(return_X_y=True, scaled=False)
reg = NONARegressor(n_estimators=1, random_state=0).fit(X, y)
spaces = {
    "Features, scaled": make_pipeline(StandardScaler(), PCA(2)).fit_transform(X),
    "Learned space": PCA(2).fit_transform(reg.transform(X)),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (title, space) in zip(axes, spaces.items(), strict=True):
    points = ax.scatter(*space.T, c=y, s=14, cmap="viridis")
    ax.set(title=title, xlabel="first principal component", ylabel="second principal component")
figure.colorbar(points, ax=axes, label="progression of diabetes")
