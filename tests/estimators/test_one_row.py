"""A row given as a dict, as a Series or as a frame has the answers of a table of many rows."""

import copy
import pickle

import numpy as np
import pytest
from inner.data import read_by_columns
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TableEncoder,
    load,
    save,
)
from nona_sklearn.eligibility import same, within

pd = pytest.importorskip("pandas")

# Queries are training rows, and training is short.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* whose own target is part of the prediction"),
    pytest.mark.filterwarnings("ignore:Maximum iterations"),
]

N = 60
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "area": np.where(np.arange(N) % 9 == 2, np.nan, RNG.normal(90, 20, N)),
        "heated": np.arange(N) % 2 == 0,
        "district": np.array([*"abcd"], dtype=object)[np.arange(N) % 4],
        "street": [f"street {i % 20}" for i in range(N)],
        "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N) * 11, "D"),
    },
    index=[f"house {i}" for i in range(N)],
)
Y = pd.Series(RNG.normal(size=N) + np.arange(N) % 4, X.index)
NEW = X.assign(district=["e", "a"] * (N // 2), street="elsewhere").iloc[:4]
FEW = {"max_iter": 1, "random_state": 0}
ENCODER = TableEncoder(min_frequency=1, max_categories=10)
ESTIMATORS = {
    "nona": (NONARegressor(n_estimators=1, table_encoder=ENCODER, **FEW), {}),
    "knn": (SoftStepKNeighborsRegressor(5, table_encoder=ENCODER, **FEW), {}),
    "classes": (NONAClassifier(n_estimators=1, table_encoder=ENCODER, **FEW), {}),
    "knn of classes": (SoftStepKNeighborsClassifier(5, **FEW), {}),
    "times": (SoftStepKNeighborsRegressor(5, **FEW), {"times": "sold"}),
    "rule": (
        SoftStepKNeighborsRegressor(5, **FEW),
        {"eligibility": same("heated") & within("sold", days=1000)},
    ),
    "model": (
        NONARegressor(
            n_estimators=1,
            trend=make_pipeline(
                OrdinalEncoder(
                    handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1
                ),
                LinearRegression(),
            ),
            **FEW,
        ),
        {},
    ),
}


def rows_of(frame):
    """The rows of a frame in all forms of one row."""
    for i in range(len(frame)):
        row = frame.iloc[i]
        yield i, [frame.iloc[[i]], frame.iloc[[i], ::-1], row, row.to_dict(), row[::-1]]


def briefly(fitted, rows):
    """How queries are encoded, and what is predicted."""
    return fitted.transform(rows), fitted.predict(rows)


def answers(fitted, rows):
    """The answers to queries, an array for each method."""
    queries = [fitted.embed(rows).embeddings.numpy(), fitted.transform(rows)]
    found = [
        fitted.predict(rows),
        *fitted.kneighbors(rows, 3),
        *fitted.heaviest_neighbors(rows, 3),
    ]
    sparse = [fitted.neighbor_weights(rows).toarray()]
    tables = [fitted.explain(rows).iloc[:, 1:], fitted.neighborhood(rows).iloc[:, 1:]]
    more = ["predict_proba"] if hasattr(fitted, "classes_") else ["predict_quantiles", "sample_y"]
    return [*queries, *found, *sparse, *tables, *(getattr(fitted, name)(rows) for name in more)]


def assert_same(found, expected):
    """All answers are the same, to the last bit."""
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert repr(np.asarray(one).tolist()) == repr(np.asarray(other).tolist())  # NaN is NaN


@pytest.fixture(scope="module", params=ESTIMATORS)
def fitted(request):
    estimator, options = ESTIMATORS[request.param]
    y = (Y > 1).map({True: "yes", False: "no"}) if hasattr(estimator, "predict_proba") else Y
    return copy.deepcopy(estimator).fit(X, y, **options)


def check_rows(fitted, frame, answer=briefly):
    """Each form of each row has the answers of the row that is read by columns."""
    for i, forms in rows_of(frame):
        with read_by_columns():
            expected = answer(fitted, frame.iloc[[i]])
        for form in forms:
            assert_same(answer(fitted, form), expected)


def test_all_forms_of_a_row_have_the_answers_of_a_table(fitted):
    check_rows(fitted, NEW.iloc[:1], answers)
    check_rows(fitted, NEW.iloc[1:])
    rows = X.iloc[:12:4]
    expected = fitted.transform(rows)
    for i, forms in rows_of(rows):
        for form in forms:
            np.testing.assert_array_equal(fitted.transform(form)[0], expected[i])


def test_what_is_read_follows_every_change_of_the_estimator(tmp_path):
    knn = copy.deepcopy(ESTIMATORS["knn"][0]).fit(X, Y)
    rows = NEW.iloc[:2].assign(district=["a", "d"])
    check_rows(knn, rows)
    knn.add_neighbors(rows.set_axis(["new", "newer"]), [9.0, 8.0])
    check_rows(knn, rows)
    before = knn.transform(rows.iloc[1])
    knn.remove_neighbors(names=["newer", *X.index[X["district"] == "d"]])  # it forgets the level
    check_rows(knn, rows)
    assert knn.transform(rows.iloc[1]).tolist() != before.tolist()
    save(knn, tmp_path / "knn.safetensors")
    for again in (copy.deepcopy(knn), copy.copy(knn), pickle.loads(pickle.dumps(knn))):
        check_rows(again, rows)
    check_rows(load(tmp_path / "knn.safetensors"), rows)
    knn.set_params(table_encoder=TableEncoder(), n_neighbors=3)
    check_rows(knn, rows)
    knn.fit(X.drop(columns="district"), Y)
    check_rows(knn, rows.drop(columns="district"))


def test_a_series_is_named_as_its_row_is():
    knn = copy.deepcopy(ESTIMATORS["knn"][0]).fit(X, Y)
    assert knn.explain(X.iloc[3])["query"].unique().tolist() == ["house 3"]
    assert knn.explain(X.iloc[3].to_dict())["query"].unique().tolist() == [0]
    shown = knn.explain(X.iloc[3], 2, features=X)
    assert shown["area"].iloc[0] == X["area"].iloc[3]
    assert shown.equals(knn.explain(X.iloc[[3]], 2, features=X))
    assert len(knn.attribute(X.iloc[3].to_dict(), X, n_neighbors=2)) == 2


def test_errors_name_columns():
    knn = copy.deepcopy(ESTIMATORS["knn"][0]).fit(X, Y)
    row = X.iloc[0].to_dict()
    without = {name: value for name, value in row.items() if name != "area"}
    for some in (without, pd.Series(without)):
        with pytest.raises(ValueError, match=r"^The feature names .* now missing: 'area'$"):
            knn.predict(some)
    with pytest.raises(ValueError, match=r"unseen at fit time: 'rooms'; seen .* missing: 'area'$"):
        knn.predict(without | {"rooms": 3})
    with pytest.raises(ValueError, match=r"^column 'area' held numbers .*, such as 'large'$"):
        knn.predict(row | {"area": "large"})
    with pytest.raises(ValueError, match=r"^column 'area' holds inf"):
        knn.predict(row | {"area": np.inf})
    for columns in ({"area": [1.0, 2.0]}, X["area"]):  # they are columns
        with pytest.raises(ValueError, match=r"a table, got a dict|got a Series of 60 values"):
            knn.predict(columns)
    with pytest.raises(ValueError, match="a table, got a dict"):
        knn.add_neighbors(row, [1.0])
    with pytest.raises(ValueError, match="must be a DataFrame as in fit"):
        knn.predict(X.iloc[0].to_numpy())


def test_a_row_needs_names_of_columns():
    numbers = np.arange(N)[:, None]
    knn = SoftStepKNeighborsRegressor(5, **FEW).fit(numbers, Y)
    with pytest.raises(ValueError, match=r"a table, got a dict: pass pandas.DataFrame"):
        knn.predict({0: 1.0})
    with pytest.raises(ValueError, match=r"got a Series of 1 values"):
        knn.predict(pd.Series([1.0]))
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        knn.predict(np.ones(1))


def test_a_dict_of_arrays_holds_the_rows_of_an_extractor():
    import torch

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 3)

        def forward(self, values):
            return self.linear(values)

    rows = {"values": RNG.normal(size=(N, 2)).astype(np.float32)}
    nona = NONARegressor(n_estimators=1, feature_extractor=First, **FEW).fit(rows, Y)
    assert nona.predict({"values": rows["values"][:3]}).shape == (3,)
