"""
Add examples of a rare class without training
=============================================

Rows can join the stored rows at any time: nothing is trained, and the next prediction uses them.
Here a classifier of handwritten digits has seen only three nines in training. Then more nines are
added, ten at a time. Rows that are added do not change a trend, so the classifier has none.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import recall_score

from nona_sklearn import NONAClassifier

X, y = load_digits(return_X_y=True)
nines, others = np.flatnonzero(y == 9), np.flatnonzero(y != 9)
train, added = np.r_[others[:800], nines[:3]], nines[3:63]
test = np.r_[others[800:], nines[63:]]


def recalls(model):
    """Share of the nines, and mean share of each other digit, that are recognized."""
    of_each = recall_score(y[test], model.predict(X[test]), average=None)
    return of_each[9], of_each[:9].mean()


clf = NONAClassifier(trend=None, n_estimators=1, random_state=0).fit(X[train], y[train])
numbers, scores = [3], [recalls(clf)]
for ids in np.split(added, 6):
    clf.add_neighbors(X[ids], y[ids])
    numbers.append(numbers[-1] + len(ids))
    scores.append(recalls(clf))

both = np.r_[train, added]
refit = NONAClassifier(trend=None, n_estimators=1, random_state=0).fit(X[both], y[both])

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
of_nines, of_others = zip(*scores, strict=True)
ax.plot(numbers, of_others, marker="s", color="0.5", label="other digits")
ax.plot(numbers, of_nines, marker="o", color="#0072B2", label="nines, nothing trained")
ax.axhline(recalls(refit)[0], color="#0072B2", linestyle="--", label="nines, trained again")
ax.set(
    xlabel="nines among the stored rows",
    ylabel="recall on test rows",
    title="More nines are recognized as examples are added",
)
ax.set_ylim(0, 1.02)
ax.legend(loc="lower right")
# sphinx_gallery_start_ignore
figure.set_label(
    "Recall against the number of stored nines. The recall of nines rises from about 0.1 with "
    "three of them to about 0.8 with 63, below a dashed line, the recall after a new training. "
    "The recall of the other digits stays at about 0.93."
)
# sphinx_gallery_end_ignore

# %%
# The first ten examples help most, and the other digits are recognized as well as before. With 63
# nines, about four of five are recognized; a new training recognizes more.
#
# More on adding and removing rows: :doc:`/editing`.
