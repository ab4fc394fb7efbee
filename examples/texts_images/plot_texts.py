"""
Which reviews are behind a predicted rating
===========================================

Short reviews with a number of stars. Words become numbers by scikit-learn; the neighbours of a new
review explain its predicted stars.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from nona_sklearn import NONARegressor

praise = ["great", "lovely", "excellent", "wonderful"]
blame = ["poor", "dirty", "terrible", "noisy"]
things = ["room", "breakfast", "staff", "view", "bath", "garden"]
pairs = [(i, j) for i in range(6) for j in range(i)]
texts, stars = [], []
for number, (first, second) in enumerate(pairs):
    one, two = number % 4, (number + first) % 4
    for a, b, star in [(praise, praise, 5), (blame, blame, 1), (praise, blame, 3)]:
        texts.append(f"{a[one]} {things[first]}, {b[two]} {things[second]}")
        stars.append(star)
queries = ["lovely garden and great view", "noisy room, poor breakfast"]

words = make_pipeline(TfidfVectorizer(), TruncatedSVD(12, random_state=0))
vectors = words.fit_transform(texts)
reg = NONARegressor(adjust=False, n_estimators=1, random_state=0).fit(vectors, stars)
n_rows = int(reg.n_nonzero_weights(words.transform(queries)).max())
weights, rows = reg.kneighbors(words.transform(queries), n_neighbors=n_rows)
predictions = reg.predict(words.transform(queries))

figure, axes = plt.subplots(2, 1, figsize=(9, 4.6), layout="constrained")
for ax, query, star, weight, row in zip(axes, queries, predictions, weights, rows, strict=True):
    ax.barh(range(n_rows), weight, color="#56B4E9")
    for place, i in enumerate(row):
        ax.text(0.005, place, f"{stars[i]} of 5 stars: {texts[i]}", va="center")
    ax.invert_yaxis()
    ax.set_yticks([])
    ax.set(title=f'"{query}": {star:.1f} of 5 stars', xlabel="weight")
