"""
Texts that answered
===================

Short reviews with a number of stars. Words become numbers by scikit-learn; the neighbours of a new
review say why it gets its stars.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from nona_sklearn import NONARegressor

praise = ["great", "lovely", "excellent", "wonderful"]
blame = ["poor", "dirty", "terrible", "noisy"]
things = ["room", "breakfast", "staff", "view", "bath", "garden"]
texts = [f"{word} {thing}, we would come again" for word in praise for thing in things]
texts += [f"{word} {thing}, never again" for word in blame for thing in things]
texts += [
    f"{one} {a} but {two} {b}"
    for one, two, a, b in zip(praise, blame, things, things[2:], strict=False)
]
stars = [5] * 24 + [1] * 24 + [3] * 4
queries = ["lovely garden and great view", "noisy room, poor breakfast"]

words = make_pipeline(TfidfVectorizer(), TruncatedSVD(12, random_state=0))
vectors = words.fit_transform(texts)
reg = NONARegressor(n_estimators=1, random_state=0).fit(vectors, stars)
weights, rows = reg.kneighbors(words.transform(queries), n_neighbors=4)
predictions = reg.predict(words.transform(queries))

figure, axes = plt.subplots(2, 1, figsize=(9, 4.6), layout="constrained")
for ax, query, star, weight, row in zip(axes, queries, predictions, weights, rows, strict=True):
    ax.barh(range(4), weight, color="#56B4E9")
    for place, i in enumerate(row):
        ax.text(0.005, place, f"{stars[i]} stars: {texts[i]}", va="center")
    ax.invert_yaxis()
    ax.set_yticks([])
    ax.set(title=f'"{query}": {star:.1f} stars', xlabel="weight")
