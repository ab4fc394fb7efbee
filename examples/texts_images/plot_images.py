"""
Which training images are behind a digit's class
================================================

Four digits that the classifier has not seen, and beside each all training images behind
its class.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from nona_sklearn import NONAClassifier

digits = load_digits()
X, y = digits.data, digits.target
clf = NONAClassifier(n_estimators=1, random_state=0).fit(X[:1200], y[:1200])
queries = [1203, 1211, 1225, 1250]
n_rows = int(clf.n_nonzero_weights(X[queries]).max())
weights, rows = clf.kneighbors(X[queries], n_neighbors=n_rows)
predictions = clf.predict(X[queries])

size = 1.15 * (n_rows + 1), 5.4
figure, axes = plt.subplots(4, n_rows + 1, figsize=size, layout="constrained")
for line, query, weight, row, digit in zip(axes, queries, weights, rows, predictions, strict=True):
    line[0].imshow(digits.images[query], cmap="gray_r")
    line[0].set_title(f"new: {digit}?", fontsize=10)
    for ax, w, i in zip(line[1:], weight, row, strict=True):
        if w > 0:
            ax.imshow(digits.images[i], cmap="gray_r")
            ax.set_title(f"a {y[i]}, {w:.0%}", fontsize=10)
for ax in axes.flat:
    ax.set_axis_off()
figure.suptitle("The query, and the rows behind it")
