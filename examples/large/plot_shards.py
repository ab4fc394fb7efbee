"""
One prediction from four shards
===============================

A bank can be split into pieces, on disk or on several machines. Their results add up to the
prediction of the whole bank.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from nona_sklearn import NONARegressor, ShardedNeighbors, save_shards

X, y = load_diabetes(return_X_y=True, scaled=False)
reg = NONARegressor(n_estimators=1, random_state=0).fit(X[:400], y[:400])
folder = Path(tempfile.mkdtemp(), "bank")
save_shards(reg, folder, n_shards=4)
sharded = ShardedNeighbors(folder)
n_rows = int(reg.n_nonzero_weights(X[400:401])[0])
weights, ids = sharded.kneighbors(X[400:401], n_neighbors=n_rows)
differ = np.abs(sharded.predict(X[400:]) - reg.predict(X[400:])).max()

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
colors = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
for shard, (color, hatch) in enumerate(zip(colors, ("", "//", "..", "xx"), strict=True)):
    mine = ids[0] // 100 == shard
    ax.bar(
        np.arange(n_rows)[mine], weights[0][mine], color=color, hatch=hatch, label=f"shard {shard}"
    )
ax.set_xticks(range(n_rows), ids[0], rotation=90)
ax.set(
    xlabel="row of the bank",
    ylabel="weight",
    title=f"All {n_rows} rows of one query; predictions differ by {differ:.0e} at most",
)
ax.legend()
