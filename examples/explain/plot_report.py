"""
The report of one prediction
============================

:class:`~nona_sklearn.NeighborsReport` shows one prediction on a page, for readers who do not use
Python: the sales behind it beside the house, the effect of each column on their prices, and the
smallest change that leads to a higher price. The data are houses sold in Ames, Iowa.
"""

# sphinx_gallery_thumbnail_path = 'images/report_thumb.png'
# sphinx_gallery_capture_repr = ('_repr_html_',)
import pandas as pd
from sklearn.model_selection import train_test_split

from nona_sklearn import NeighborsReport, NONARegressor
from nona_sklearn.datasets import load_ames

houses, price = load_ames(return_X_y=True)
price = price.rename("price in dollars")
X_train, X_test, y_train, y_test = train_test_split(houses, price, random_state=0)

reg = NONARegressor(n_neighbors=8, random_state=0).fit(X_train, y_train)
print(f"R² on {len(X_test)} test houses: {reg.score(X_test, y_test):.2f}")

# %%
# The report of house 1223. The last section answers how the predicted price becomes at least
# $170,000 if the place stays as it is. The method ``save("house.html")`` of the result writes the
# page as one file.
house = X_test.loc[["house 1223"]]
NeighborsReport(
    reg,
    house,
    X_train,
    y_true=y_test["house 1223"],
    at_least=170_000,
    fixed=["neighborhood", "longitude", "latitude"],
)

# %%
# The report is about one prediction. The feature importances are about the model:
pd.Series(reg.feature_importances_, houses.columns).nlargest(8).round(2).to_frame(
    "feature importance"
)

# %%
# More on reports and counterfactuals: :doc:`/decision`.
