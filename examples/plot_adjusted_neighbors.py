"""
Adjusted neighbours of a house price
====================================

A prediction is a mean of a few real prices. Each price is first moved by what sets its house apart
from the house in question: here, how much larger it is and how old.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from nona_sklearn import NONARegressor

rng = np.random.default_rng(0)
n_houses = 400
houses = pd.DataFrame(
    {
        "area": rng.integers(60, 220, n_houses),
        "built": rng.integers(1920, 2021, n_houses),
        "district": rng.choice(["harbour", "hill", "park"], n_houses),
    },
    index=[f"house {i}" for i in range(n_houses)],
)
of_district = houses["district"].map({"harbour": 0, "hill": 60, "park": 110})
price = 1.6 * houses["area"] + 0.9 * (houses["built"] - 1920) + of_district
price += rng.normal(scale=12, size=n_houses)

reg = NONARegressor(n_estimators=1, random_state=0).fit(houses[1:], price[1:])
table = reg.explain(houses[:1])  # every row with weight

place = np.arange(len(table))
figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
ax.hlines(place, table["target"], table["adjusted_target"], color="0.6", zorder=1)
sizes = 2000 * table["weight"]
ax.scatter(table["target"], place, s=sizes, color="#0072B2", label="sold (area: weight)")
ax.scatter(
    table["adjusted_target"],
    place,
    s=sizes,
    facecolor="white",
    edgecolor="#0072B2",
    label="adjusted",
)
ax.axvline(reg.predict(houses[:1])[0], color="black", linestyle="--", label="prediction")
ax.set_yticks(place, table["neighbor"])
ax.invert_yaxis()
ax.set(xlabel="price (thousand dollars)", title="All houses behind one prediction")
ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), markerscale=0.6)

# %%
# A line leads from the price of a house to its price adjusted to the house in question.
