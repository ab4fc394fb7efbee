"""
Find wrong labels
=================

A fitted classifier predicts the label of each training row from all other rows, without another
fit. Rows whose label is improbable under this prediction deserve a second look. Here one in twenty
labels of handwritten digits is wrong on purpose, so that we can count how many are found.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nona_sklearn import NONAClassifier

digits = load_digits()
X, y, images = digits.data[:800], digits.target[:800], digits.images[:800]
rng = np.random.default_rng(0)
wrong = rng.choice(800, 40, replace=False)
labels = y.copy()
labels[wrong] = (y[wrong] + rng.integers(1, 10, 40)) % 10

clf = NONAClassifier(n_estimators=1, random_state=0).fit(X, labels)
probability = clf.predict_proba(None)[np.arange(800), labels]  # of the label that each row has
order = probability.argsort()
found = np.isin(order, wrong).cumsum()
print(f"{found[39]} of the 40 wrong labels are among the 40 least probable ones")

# %%
# The rows in the order in which one would check them:
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(np.arange(1, 201), found[:200], color="#0072B2", label="least probable labels first")
ax.plot([0, 200], [0, 10], color="0.5", linestyle="--", label="in random order")
ax.set(
    xlabel="rows that are checked",
    ylabel="wrong labels found, of 40",
    title="Wrong labels are at the top of the list",
)
ax.legend(loc="center right")
# sphinx_gallery_start_ignore
figure.set_label(
    "Wrong labels found against rows checked. The curve of the least probable labels rises to 40 "
    "within the first 50 rows; the line of a random order reaches 10 after 200 rows."
)
# sphinx_gallery_end_ignore

# %%
# The first rows of the list, with the label in the data and the digit that the other rows predict:
figure, axes = plt.subplots(1, 8, figsize=(9, 1.9), layout="constrained")
predicted = clf.predict(None)
for ax, row in zip(axes, order, strict=False):
    ax.imshow(images[row], cmap="gray_r")
    ax.set_title(f"label {labels[row]}\npredicted {predicted[row]}", fontsize=9)
    ax.set_axis_off()
# sphinx_gallery_start_ignore
figure.set_label(
    "Eight handwritten digits. Above each its label in the data and the predicted digit; the "
    "predicted one is what the picture shows."
)
# sphinx_gallery_end_ignore

# %%
# A check of the first 50 rows finds all wrong labels. In a random order, 50 checks find two or
# three of them.
#
# More on label errors: :doc:`/check_data`.
