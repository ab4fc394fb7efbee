"""Messages that docs/errors.md lists are those that mistakes lead to."""

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nona_sklearn import NONAClassifier, NONARegressor, load

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
MESSAGES = re.findall(r"^\*\*`(.*)`\*\*", PAGE.read_text(), re.MULTILINE)
QUICK = {"n_estimators": 1, "max_iter": 2, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    random = np.random.RandomState(0)
    X = pd.DataFrame(random.standard_normal((120, 3)), columns=["a", "b", "c"])
    return X, X["a"] + X["b"] ** 2


def reg(**options):
    return NONARegressor(**QUICK | options)


def clf():
    return NONAClassifier(**QUICK)


def load_pickle(X, y):
    path = Path("model.pkl")
    path.write_bytes(pickle.dumps(reg().fit(X, y)))
    load(path)


def fit_persons(X, y):
    random = np.random.RandomState(0)
    person = np.repeat(np.arange(60), 6)
    traits = random.normal(size=(60, 4))
    visits = traits[person] + 0.05 * random.normal(size=(360, 4))
    reg(max_iter=40, n_estimators=2).fit(visits, (traits[:, 0] + random.normal(size=60))[person])


def fit_noise(X, y):
    random = np.random.RandomState(0)
    NONARegressor(random_state=0).fit(
        random.standard_normal((300, 5)), random.standard_normal(300)
    )


MISTAKES = [
    lambda X, y: reg().fit(X, y.where(y > 0)),
    lambda X, y: reg().fit(X, y.astype(str) + " $"),
    lambda X, y: reg().fit(X["a"], y),
    lambda X, y: reg().fit(X, y).predict(X.drop(columns="b")),
    lambda X, y: reg().fit(X, y).predict(X.to_numpy()),
    lambda X, y: reg().fit(X, y).predict(X.assign(b="many")),
    lambda X, y: reg().fit(X.assign(b=np.inf), y),
    lambda X, y: reg().fit(X.assign(b=[1, "many"] * 60), y),
    lambda X, y: reg().fit(pd.concat([X, X], axis=1), y),
    lambda X, y: reg().fit(X.assign(day="31.12.2024"), y),
    lambda X, y: reg().fit(X.assign(d=y), y),
    lambda X, y: reg().fit(X, y.sample(frac=1, random_state=0)),
    lambda X, y: reg().fit(X, y, groups="person"),
    lambda X, y: clf().fit(X, y),
    lambda X, y: clf().fit(X, np.zeros(120, int)),
    lambda X, y: clf().fit(X, (y > 0).astype(int)).add_neighbors(X[:1] + 1, [3]),
    lambda X, y: clf().fit(X, np.where(y > 0, "high", "low")).predict_quantiles(X, [0.5]),
    lambda X, y: reg(k=3),
    lambda X, y: reg(n_estimators=3, n_neighbors=2, similarity="l2").fit(X, y),
    lambda X, y: reg(device="gpu").fit(X, y),
    lambda X, y: reg(similarity="euclidean").fit(X, y),
    lambda X, y: reg().fit(X, y).predict_quantiles(X, [5, 95]),
    lambda X, y: reg().fit(X, y),
    fit_noise,
    fit_persons,
    lambda X, y: reg().fit(X, y).explain(X[:1]),
    lambda X, y: NONARegressor().predict(X),
    load_pickle,
]


@pytest.mark.parametrize(("message", "mistake"), [*zip(MESSAGES, MISTAKES, strict=True)])
def test_a_mistake_has_its_message(message, mistake, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            mistake(*table)
        except (TypeError, ValueError) as error:
            printed = [str(error)]
        else:
            printed = []
    printed += [str(each.message) for each in found]
    pattern = ".*".join(map(re.escape, message.split("…")))
    assert any(re.search(pattern, text, re.DOTALL) for text in printed), printed
