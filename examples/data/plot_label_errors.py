"""
Find wrong labels by leave-one-out
==================================

Each row's label is predicted by all other rows, without another fit. Labels that their neighbours
contradict deserve a second look.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nona_sklearn import NONAClassifier

X, y = load_digits(return_X_y=True)
X, y = X[:800], y[:800]
rng = np.random.default_rng(0)
wrong = rng.choice(800, 40, replace=False)
labels = y.copy()
labels[wrong] = (y[wrong] + rng.integers(1, 10, 40)) % 10  # one in twenty

clf = NONAClassifier(n_estimators=1, random_state=0).fit(X, labels)
probability = clf.predict_proba(None)[np.arange(800), labels]
order = probability.argsort()
found = np.cumsum(np.isin(order, wrong))

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(np.arange(1, 201), found[:200], color="#0072B2", label="least probable labels first")
ax.plot([0, 200], [0, 10], color="0.5", linestyle="--", label="in any order")
ax.set(
    xlabel="rows that are looked at",
    ylabel="wrong labels among them, of 40",
    title="Digits: 40 of 800 labels are wrong",
)
ax.legend(loc="center right")
