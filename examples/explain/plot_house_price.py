"""
Comparable sales behind a house price
=====================================

An appraiser looks for comparable houses, and adjusts what each of them sold for.
:class:`~nona_sklearn.NONARegressor` predicts in the same way: a prediction is a weighted mean of a
few adjusted prices. The data are sales in Ames, Iowa, from 2006 to 2010.
"""

from sklearn.model_selection import train_test_split

from nona_sklearn import NeighborsDisplay, NONARegressor
from nona_sklearn.datasets import load_ames

X, y = load_ames(return_X_y=True)
y = (y / 1000).rename("price in thousand dollars")
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

reg = NONARegressor(n_neighbors=10, random_state=0).fit(X_train, y_train)
print(f"R² on {len(X_test)} test sales: {reg.score(X_test, y_test):.2f}")

# %%
# One test sale, and all rows behind its predicted price. The labels of the rows are made of three
# of their features.
house, price = X_test.loc[["house 71"]], y_test["house 71"]
shown = X_train[["living_area", "year_built", "neighborhood"]].itertuples(index=False)
labels = [f"{area:,} sq ft, {built}, {place}" for area, built, place in shown]
display = NeighborsDisplay.from_estimator(reg, house, price, row_names=labels)
display.ax_.set_title("House of 1,889 sq ft, 2000, Gilbert")
display.figure_.set_size_inches(8, 5)
# sphinx_gallery_start_ignore
display.figure_.set_label(
    "Up to ten comparable sales, one a line, with their weights. A dotted line leads from the "
    "price of each to its price adjusted to the house in question. The adjusted prices are near "
    "the predicted price, a vertical line, which is close to the true one."
)
# sphinx_gallery_end_ignore

# %%
# A full dot is the price that a house sold for, and the open dot is this price adjusted to the
# house in question. Prices of much smaller houses move up, those of larger ones down. The prices
# differ by more than 50 thousand dollars, the adjusted prices by less than half as much. Their
# weighted mean is the prediction. The right axis shows what each row contributes to it. No other
# row has any weight.
#
# More on such explanations: :doc:`/neighbors`.
