"""
Training images behind the class of a digit
===========================================

Each prediction of :class:`~nona_sklearn.NONAClassifier` rests on a few training images, so that
one can look at all of them. Two of these handwritten digits are classified correctly, two are not.
A trend would correct the votes, and has no images to look at, so this classifier has none.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nona_sklearn import NONAClassifier

digits = load_digits()
X, y, images = digits.data, digits.target, digits.images
clf = NONAClassifier(trend=None, n_estimators=1, random_state=0).fit(X[:1200], y[:1200])
predicted = clf.predict(X[1200:])
print(f"accuracy on {len(predicted)} test images: {(predicted == y[1200:]).mean():.2f}")

# %%
# Two test images that are classified correctly, and the first two that are not:
wrong = 1200 + np.flatnonzero(predicted != y[1200:])
queries = [1203, 1211, *wrong[:2]]
n_rows = int(clf.neighborhood(X[queries])["n_nonzero_weights"].max())
weights, rows = clf.heaviest_neighbors(X[queries], n_neighbors=n_rows)

figure, axes = plt.subplots(4, n_rows + 1, figsize=(n_rows + 1, 5.6), layout="constrained")
for line, query, weight, row in zip(axes, queries, weights, rows, strict=True):
    line[0].imshow(images[query], cmap="Blues")
    line[0].set_title(f"true {y[query]}\npred. {predicted[query - 1200]}", fontsize=10)
    for ax, w, i in zip(line[1:], weight, row, strict=True):
        if w > 0:
            ax.imshow(images[i], cmap="gray_r")
            ax.set_title(f"a {y[i]}\n{w:.0%}", fontsize=10)
for ax in axes.flat:
    ax.set_axis_off()
# sphinx_gallery_start_ignore
figure.set_label(
    "Four rows of images of digits. The first image of a row is a test image, the others are the "
    "training images behind its class with their labels and weights. In the first two rows "
    "nearly all labels are the true one; in the others most are not."
)
# sphinx_gallery_end_ignore

# %%
# In the first column are the test images, beside them all training images behind their classes. In
# the correct predictions nearly all labels are the true one. In the incorrect ones most votes are
# for another digit: these training images look like the test image, but have another label. Where
# images of several digits vote, the probability of the predicted one is lower.
#
# More on images: :doc:`/texts_images`.
