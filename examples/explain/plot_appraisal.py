"""
Comparable sales of an appraisal
================================

An appraiser compares a house with sales that are near, recent and of the same type, and needs
several of these. Rules of :mod:`nona_sklearn.eligibility` state which sales are comparable: within
a mile and within the year before, three at least. Prediction, interval and report then follow the
rule. The data are houses sold in Ames, Iowa.
"""

# sphinx_gallery_capture_repr = ('_repr_html_',)
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from nona_sklearn import NeighborsReport, NONARegressor
from nona_sklearn.datasets import load_ames
from nona_sklearn.eligibility import distance, same, within

houses, price = load_ames(return_X_y=True)
price = price.rename("price in dollars")
X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)

before = within("sold", days=365, before=True)
mile = distance("latitude", "longitude") < 1609
rule = (before & mile & same("style")).at_least(3, relax=[before & mile, before])
reg = NONARegressor(n_neighbors=8, random_state=0).fit(X_train, y_train, eligibility=rule)

# %%
# The comparable sales of house 1223, with prices that are adjusted to it, and distances.
house = X_test.loc[["house 1223"]]
comparables = reg.explain(house)
columns = ["neighbor", "weight", "target", "adjusted_target", "metres"]
comparables[columns].round({"weight": 2, "target": 0, "adjusted_target": 0, "metres": 0})

# %%
# On the map, larger dots have more weight.
fig, ax = plt.subplots(figsize=(5, 5))
fig.set_label("Map of the sales around the house, with the comparable sales within a mile of it.")
sold = X_train.loc[X_train["sold"] < house["sold"].item()]
rows = X_train.loc[comparables["neighbor"]]
ax.scatter(sold["longitude"], sold["latitude"], s=4, color="lightgray", label="earlier sales")
sizes = 500 * comparables["weight"]
ax.scatter(rows["longitude"], rows["latitude"], s=sizes, label="comparable sales")
ax.scatter(house["longitude"], house["latitude"], marker="x", color="black", label="the house")
longitude, latitude = house[["longitude", "latitude"]].iloc[0]
height = 1609 / 111_195  # degrees of latitude in a mile
width = height / 0.743  # of longitude: 0.743 is the cosine of the latitude
angle = np.linspace(0, 2 * np.pi)
ax.plot(longitude + width * np.cos(angle), latitude + height * np.sin(angle), "k:", label="a mile")
ax.set(xlabel="longitude", ylabel="latitude", aspect=1 / 0.743)
ax.set(xlim=(longitude - 1.5 * width, longitude + 1.5 * width))
ax.set(ylim=(latitude - 1.5 * height, latitude + 1.5 * height))
ax.legend(loc="upper left")
fig.tight_layout()

# %%
# The report names the rule and the number of eligible sales. ``save("house.html")`` of the result
# writes it as one file, to be signed.
NeighborsReport(reg, house, X_train, y_true=y_test["house 1223"])

# %%
# The share of new prices within their 90 % intervals. Houses sold in the first year, which have
# few earlier sales, are left out:
later = X_test["sold"] >= "2007"
low, high = reg.predict_quantiles(X_test[later], (0.05, 0.95)).T
covered = (low <= y_test[later]) & (y_test[later] <= high)
print(f"90 % intervals cover {covered.mean():.0%} of {len(covered)} prices")

# %%
# More on rules: :doc:`/eligibility`.
