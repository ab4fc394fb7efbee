"""
A classifier's boundary, and the rows behind one prediction
===========================================================

Neighbours vote with their weights. All rows that have weight for one query are circled.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay

from nona_sklearn import NONAClassifier

X, y = make_moons(300, noise=0.25, random_state=0)
clf = NONAClassifier(n_estimators=1, random_state=0).fit(X, y)
query = np.array([[0.6, 0.35]])
n_rows = int(clf.n_nonzero_weights(query)[0])
weights, rows = clf.kneighbors(query, n_neighbors=n_rows)

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
boundary = DecisionBoundaryDisplay.from_estimator(
    clf,
    X,
    response_method="predict_proba",
    class_of_interest=1,
    cmap="cividis",
    levels=np.linspace(0, 1, 11),
    alpha=0.7,
    eps=0.2,
    ax=ax,
)
for label, marker in enumerate("os"):
    ax.scatter(
        *X[y == label].T, marker=marker, s=14, color="white", edgecolor="black", linewidth=0.6
    )
ax.scatter(
    *X[rows[0]].T, s=1500 * weights[0], facecolor="none", edgecolor="#D55E00", linewidth=1.5
)
ax.scatter(*query.T, marker="*", s=180, color="#D55E00", edgecolor="black")
figure.colorbar(boundary.surface_, ax=ax, label="probability of the squares")
ax.set(xlabel="feature 0", ylabel="feature 1", title="A query (star) and the rows that predict it")
