"""Columns of texts, as numbers."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from inner.data import TextEncoder
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.preprocessing import FunctionTransformer

import nona_sklearn
from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
)

WORDS = [
    *("lovely", "quiet", "broken", "noisy", "garden"),
    *("stairs", "cellar", "window", "harbour", "market"),
]
ALL = [NONARegressor, NONAClassifier, SoftStepKNeighborsRegressor, SoftStepKNeighborsClassifier]


def notes(n=60, seed=0):
    """A table with texts, and how many good words each has more than bad ones."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(n)]
    y = [sum(text.count(word) for word in WORDS[:2]) for text in texts]
    return pd.DataFrame({"size": rng.normal(size=n), "note": texts}), np.array(y, dtype=float)


def texts_of(X, **kwargs):
    """Fit an encoder: (encoder, the columns that "note" becomes)."""
    encoder = TableEncoder(**kwargs)
    Z = encoder.fit_transform(X)
    np.testing.assert_array_equal(encoder.transform(X), Z)
    of_text = encoder.source_ == list(X).index("note")
    names = [f"note_{i}" for i in range(of_text.sum())]
    assert encoder.get_feature_names_out()[of_text].tolist() == names
    return encoder, Z[:, of_text]


def count(texts):
    """A function of texts, as a model of embeddings is: of the letter o, and all."""
    return np.array([[text.count("o"), len(text)] for text in texts])


def test_texts_are_components_of_their_ngrams():
    X, _ = notes()
    tfidf = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4)).fit_transform(X["note"])
    _, Z = texts_of(X, text_features="note")
    # There are 10 words, so that 10 components hold all similarities.
    assert Z.shape == (60, 10)
    np.testing.assert_allclose(Z @ Z.T, (tfidf @ tfidf.T).toarray(), atol=1e-9)


@pytest.mark.parametrize(
    "vectorizer", [TfidfVectorizer(), HashingVectorizer(n_features=256), CountVectorizer()]
)
def test_sparse_results_of_a_given_vectorizer_are_reduced(vectorizer):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 99, 20)) for _ in range(50)]
    X = pd.DataFrame({"note": texts})
    _, Z = texts_of(X, text_features={"note": vectorizer})
    sparse = clone(vectorizer).fit_transform(texts)
    svd = TruncatedSVD(30, random_state=0).fit(sparse)
    np.testing.assert_allclose(Z, svd.transform(sparse), atol=1e-9)
    assert not hasattr(vectorizer, "vocabulary_")  # a copy was fitted


def test_few_sparse_features_stay_as_they_are():
    X, _ = notes()
    given = CountVectorizer()
    _, Z = texts_of(X, text_features={"note": given})
    np.testing.assert_array_equal(Z, clone(given).fit_transform(X["note"]).toarray())


@pytest.mark.parametrize("vectorizer", [count, FunctionTransformer(count)])
def test_a_function_and_a_dense_transformer_give_their_numbers(vectorizer):
    X, _ = notes()
    X.loc[::7, "note"] = None
    _, Z = texts_of(X, text_features={"note": vectorizer})
    np.testing.assert_array_equal(Z, count(X["note"].fillna("")))


@pytest.mark.parametrize("chosen", [["note"], 1, -1, [np.int64(1)], np.array(["note"])])
def test_columns_are_named_or_numbered(chosen):
    X, _ = notes()
    expected = texts_of(X, text_features="note")[1]
    np.testing.assert_array_equal(texts_of(X, text_features=chosen)[1], expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda X: X.astype({"note": "category"}),
        pl.from_pandas,
        lambda X: X.to_numpy(),
        lambda X: X.astype(object),
    ],
)
def test_texts_are_the_same_in_every_table(make):
    X, _ = notes()
    encoder, _ = texts_of(X, text_features=[1])
    again = TableEncoder(text_features=[1])
    np.testing.assert_array_equal(again.fit_transform(make(X)), encoder.transform(X))
    np.testing.assert_array_equal(again.transform(make(X)), encoder.transform(X))


def test_equal_texts_are_one_column_without_rounding():
    X = pd.DataFrame({"note": ["such a very long and lovely garden"] * 40})
    _, Z = texts_of(X, text_features="note")
    assert Z.shape == (40, 1)
    np.testing.assert_allclose(abs(Z), 1)


@pytest.mark.parametrize(
    "texts", [["1.5", "2.5"], ["31.12.2024", "30.11.2024"], ["2024-12-31", "2024-11-30"]]
)
def test_numbers_and_dates_that_are_chosen_are_texts(texts):
    X = pd.DataFrame({"note": texts})
    _, Z = texts_of(X, text_features={"note": count})
    np.testing.assert_array_equal(Z, count(texts))


def test_later_rows_may_be_empty_but_no_numbers():
    X, _ = notes()
    encoder, _ = texts_of(X, text_features={"note": count})
    assert encoder.transform(X[:2].assign(note=[None, np.nan]))[:, 1:].tolist() == [[0, 0]] * 2
    with pytest.raises(ValueError, match="'note' held texts in fit, and holds numbers now"):
        encoder.transform(X[:2].assign(note=[1.0, 2.0]))


REFUSED = {
    "unknown": ("nota", ValueError, "text_features must be columns of X, got 'nota'"),
    "number": (7, ValueError, "text_features must be columns of X, got 7"),
    "mask": ([False, True], ValueError, "text_features must name columns, got a mask"),
    "numbers": ("size", TypeError, "column 'size' holds numbers, such as"),
    "class": ({"note": TfidfVectorizer}, TypeError, "for column 'note', got <class 'sklearn"),
    "string": ({"note": "tfidf"}, TypeError, "must have a transformer.* got 'tfidf'"),
    "no rows": ({"note": lambda t: [1.0]}, ValueError, r"of shape \(1, d\), got .* shape \(1,\)"),
    "no array": ({"note": lambda t: 5.0}, ValueError, r"of shape \(1, d\), got .* shape \(\)"),
    "one axis": ({"note": lambda t: np.ones(60)}, ValueError, "of column 'note': .* finite numb"),
    "gaps": (
        {"note": lambda t: np.full((len(t), 2), np.nan)},
        ValueError,
        "numbers, got nan for '",
    ),
    "infinity": ({"note": lambda t: np.full((len(t), 2), np.inf)}, ValueError, "got inf for '"),
    "no words": (
        {"note": CountVectorizer(min_df=100)},
        ValueError,
        "text_features of column 'note': max_df",
    ),
}


@pytest.mark.parametrize("kind", [TableEncoder, *ALL])
@pytest.mark.parametrize("case", REFUSED)
def test_text_features_that_are_refused(kind, case):
    chosen, error, message = REFUSED[case]
    name = "text_features" if kind is TableEncoder else "table_encoder__text_features"
    X, y = notes()
    with pytest.raises(error, match=message):
        kind().set_params(**{name: chosen}).fit(X, y)


def test_a_column_is_text_or_category():
    X, _ = notes()
    encoder = TableEncoder(["note"], text_features=["note"])
    with pytest.raises(ValueError, match="'note' must be in categorical_features or in text"):
        encoder.fit(X)


@pytest.mark.parametrize("missing", ["", "  ", None])
def test_a_column_without_texts_is_the_same_in_all_rows(missing):
    X, _ = notes()
    encoder = TableEncoder(text_features="note").fit(X.assign(note=missing))
    np.testing.assert_array_equal(encoder.transform(X)[:, 1:], np.zeros((len(X), 1)))
    assert encoder.get_feature_names_out()[1] == "note_0"


def test_as_many_words_as_components_stay_words():
    words = [f"word{i:02d}" for i in range(30)]
    encoder = TextEncoder.fit(CountVectorizer(), [" ".join(words), *words])
    assert encoder.svd is None
    np.testing.assert_array_equal(encoder.encode(words), np.eye(30))


def test_a_function_of_another_size_is_refused():
    X, _ = notes()
    encoder = TableEncoder(text_features={"note": lambda texts: np.ones((len(texts), len(texts)))})
    with pytest.raises(ValueError, match=r"must return finite numbers of shape \(60, 1\)"):
        encoder.fit(X)


def test_a_model_takes_each_text_once_in_fit():
    X, _ = notes()
    taken = []
    TableEncoder(text_features={"note": lambda texts: taken.extend(texts) or count(texts)}).fit(X)
    assert len(taken) == len(X) + 1  # one shows the size


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_estimators_learn_from_texts(kind):
    X, y = notes(300)
    y = y if kind in ALL[::2] else y > 0
    params = {"n_estimators": 1} if kind in ALL[:2] else {}
    model = kind(
        max_iter=30,
        random_state=0,
        table_encoder=TableEncoder(text_features={"note": TfidfVectorizer()}),
        **params,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.85
    np.testing.assert_allclose(
        model.transform(X[200:201]), model.transform(X[200:])[:1], rtol=1e-5, atol=1e-6
    )
    if hasattr(model, "feature_importances_"):
        assert model.feature_importances_[1] > 0.5


@pytest.mark.parametrize("chosen", ["note", {"note": CountVectorizer()}])
def test_fitted_vectorizers_of_scikit_learn_are_stored(chosen, tmp_path):
    X, y = notes()
    model = NONARegressor(
        n_estimators=1,
        max_iter=1,
        random_state=0,
        table_encoder=TableEncoder(text_features=chosen),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    nona_sklearn.save(model, tmp_path / "model.safetensors")
    for again in (
        nona_sklearn.load(tmp_path / "model.safetensors"),
        pickle.loads(pickle.dumps(model)),
    ):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("vectorizer", [count, HashingVectorizer(n_features=64)])
def test_a_file_holds_no_other_vectorizers(vectorizer, tmp_path):
    X, _ = notes()
    encoder = TableEncoder(text_features={"note": vectorizer}).fit(X)
    with pytest.raises(TypeError, match=re.escape("text_features.vectorizer is a")) as error:
        nona_sklearn.save(encoder, tmp_path / "encoder.safetensors")
    assert "pickle" in str(error.value)
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.transform(X), encoder.transform(X))
