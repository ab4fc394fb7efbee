"""What trend='auto', the default, means for which rows."""

import pickle
import warnings

import numpy as np
import pytest
from inner.estimators import architectures, upgrade_nona, upgrade_softstep
from scipy import sparse
from sklearn.base import clone
from torch import nn

from nona_sklearn import (
    NONAClassifier,
    NONARegressor,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    load,
    save,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = X[:, 0] + 0.1 * RNG.normal(size=40)
QUICK = {"n_estimators": 1, "max_iter": 2, "random_state": 0}
EACH = pytest.mark.parametrize("kind", [NONARegressor, NONAClassifier])
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def targets(kind, n=40):
    return Y[:n] if kind is NONARegressor else (Y[:n] > np.median(Y[:n])).astype(int)


def quick(kind=NONARegressor, **params):
    return kind(**QUICK | params)


@EACH
def test_it_is_a_kernel(kind):
    automatic = quick(kind).fit(X, targets(kind))
    assert automatic.get_params()["trend"] == "auto"
    assert automatic.trend_ == "kernel"
    assert automatic.bank_.trend is not None
    given = quick(kind, trend="kernel").fit(X, targets(kind))
    np.testing.assert_array_equal(automatic.predict(X[:9]), given.predict(X[:9]))


@EACH
@pytest.mark.parametrize("params", [{"trend": None}, {"adjust": False}], ids=str)
def test_it_is_none_where_networks_are_alone(kind, params):
    model = quick(kind, **params).fit(X, targets(kind))
    assert model.trend_ is None
    assert model.bank_.trend is None


@EACH
@pytest.mark.parametrize(("n_rows", "trend"), [(9, None), (10, "kernel")])
def test_it_needs_ten_rows(kind, n_rows, trend):
    assert quick(kind).fit(X[:n_rows], targets(kind, n_rows)).trend_ == trend


def test_rows_without_weight_do_not_count():
    weights = np.r_[np.ones(9), np.zeros(31)]
    assert quick().fit(X, Y, sample_weight=weights).trend_ is None


@pytest.mark.parametrize(("most", "trend"), [(2, None), (3, "kernel")])
def test_it_has_so_many_columns_at_most(most, trend, monkeypatch):
    assert architectures.MAX_TREND_COLUMNS == 1024
    monkeypatch.setattr(architectures, "MAX_TREND_COLUMNS", most)
    assert quick().fit(X, Y).trend_ == trend


def test_a_wide_sparse_matrix_has_none_and_a_narrow_one_is_a_table():
    wide = sparse.random(40, 400, 0.1, "csr", random_state=0)
    assert quick().fit(wide, Y).trend_ is None
    assert quick().fit(sparse.csr_array(X), Y).trend_ == "kernel"


def test_times_have_none():
    """SoftStep k-NN of numbers has the additive trend, as where it has no kernel otherwise."""
    assert quick().fit(X, Y, times=np.arange(40)).trend_ is None
    assert quick(trend="kernel").fit(X, Y, times=np.arange(40)).trend_ == "kernel"
    knn = SoftStepKNeighborsRegressor(max_iter=2, random_state=0)
    assert knn.fit(X, Y, times=np.arange(40)).trend_ == "additive"
    assert knn.fit(X, Y).trend_ == "kernel"
    of_classes = SoftStepKNeighborsClassifier(max_iter=2, random_state=0)
    assert of_classes.fit(X, Y > 0, times=np.arange(40)).trend_ is None


@pytest.mark.parametrize("layers", [(4,), None])
def test_an_extractor_has_none(layers):
    adjust = False if layers is None else "auto"
    reg = quick(feature_extractor=nn.Linear(3, 2), hidden_layer_sizes=layers, adjust=adjust)
    assert reg.fit(X.astype(np.float32), Y).trend_ is None


def test_each_fit_chooses_anew():
    reg = quick().fit(X, Y)
    assert reg.fit(X[:9], Y[:9]).trend_ is None
    assert reg.fit(X, Y).trend_ == "kernel"
    reg.set_params(feature_extractor=nn.Linear(3, 2))
    assert reg.fit(X.astype(np.float32), Y).trend_ is None


def test_what_depends_on_a_trend_follows():
    """Two networks, and three epochs without gain."""
    beside = NONARegressor(random_state=0).fit(X, Y)
    assert beside.n_estimators_ == 2
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        NONARegressor(random_state=0, max_iter=1, n_estimators=1).fit(X, Y)
    assert "n_iter_no_change=3 epochs" in str(found[0].message)
    alone = NONARegressor(random_state=0, adjust=False, max_iter=2).fit(X, Y)
    assert alone.n_estimators_ == 5


def test_copies_and_files_keep_the_choice(tmp_path):
    reg = quick().fit(X, Y)
    save(reg, tmp_path / "reg.nona")
    for copy in (load(tmp_path / "reg.nona"), pickle.loads(pickle.dumps(reg))):
        assert (copy.trend, copy.trend_) == ("auto", "kernel")
        np.testing.assert_array_equal(copy.predict(X[:9]), reg.predict(X[:9]))
    assert clone(reg).trend == "auto"


def test_files_of_earlier_versions_have_none():
    assert upgrade_nona({})["trend"] is None
    assert upgrade_nona({"trend": "kernel"})["trend"] == "kernel"
    assert upgrade_softstep({"smoothing": True})["trend"] is None
    assert upgrade_softstep({"adjust": True})["trend"] == "additive"
    assert upgrade_softstep({"trend": "kernel"})["trend"] == "kernel"


def test_the_share_counts_rows_by_their_weights():
    """Twice as many validation rows, half of which weigh nearly nothing, are no more evidence."""
    own, light = X[:20], np.r_[np.ones(20), np.full(20, 1e-9)]
    shares = []
    for valid, weights in ((own, None), (np.r_[own, own], light)):
        y = np.r_[Y[:20], -Y[:20]][: len(valid)]
        reg = quick(n_neighbors=5).fit(X, Y, X_val=valid, y_val=y, sample_weight_val=weights)
        shares.append(reg.bank_.neighbors.offset.share)
    assert shares[0] == pytest.approx(shares[1], rel=1e-5)
