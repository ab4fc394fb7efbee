"""Classes: the head that adds up their weights, targets, and the two estimators."""

import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inner.data import ClassTargets
from inner.inference import Evaluation, LabelExclusion, Neighbors
from inner.training import refine
from inner.utils import UPGRADES
from scipy.sparse import csr_array
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nona_sklearn import (
    ASSoftmax,
    ClassHead,
    NONAClassifier,
    NONAHead,
    NONARegressor,
    SoftStep,
    SoftStepKNeighborsClassifier,
    SoftStepKNeighborsRegressor,
    TrainingOptions,
)
from nona_sklearn.attention import AverageHead
from nona_sklearn.losses import ASSoftmaxLoss, LogLoss, MultilabelASSoftmaxLoss
from nona_sklearn.weighting import Softmax


def nona(**params):
    given = {"n_estimators": 1, "max_iter": 5, "hidden_layer_sizes": (16,), "random_state": 0}
    return NONAClassifier(**given | params)


def softstep_knn(**params):
    return SoftStepKNeighborsClassifier(**{"max_iter": 10, "random_state": 0} | params)


BOTH = [nona, softstep_knn]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(y))
    return X[order[:100]], X[order[100:]], y[order[:100]], y[order[100:]]


# -- the head ---------------------------------------------------------------------------------


def one_hot(labels, n_classes):
    return torch.nn.functional.one_hot(torch.as_tensor(labels), n_classes).double()


def test_votes_on_paper():
    """Distances 1 and 1 + ln 3 give the first neighbour three quarters of the weight."""
    head = ClassHead(prior=torch.tensor([0.5, 0.5]), smoothing=False).double().eval()
    neighbors = torch.tensor([[1.0], [-1.0 - math.log(3)]], dtype=torch.float64)
    probabilities = head(torch.zeros(1, 1, dtype=torch.float64), neighbors, one_hot([1, 0], 2))
    torch.testing.assert_close(probabilities, torch.tensor([[0.25, 0.75]], dtype=torch.float64))


def test_odds_on_paper():
    """Two neighbours of class 0 and one of class 1, equally near; class 1 counts four times."""
    head = ClassHead(prior=torch.tensor([0.5, 0.5]), smoothing=False, n_adjusted=2).eval()
    query = torch.tensor([[0.0, 7.0, 7.0 + math.log(4)]])
    neighbors = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0], [1.0, 0, 0]])
    probabilities = head(query, neighbors, one_hot([0, 0, 1], 2).float())
    torch.testing.assert_close(probabilities, torch.tensor([[2 / 6, 4 / 6]]))
    plain = head(query, neighbors, one_hot([0, 0, 1], 2).float(), adjustment_scale=None)
    torch.testing.assert_close(plain, torch.tensor([[2 / 3, 1 / 3]]))
    head.trust_radius.fill_(0.5)  # the nearest neighbour is twice as far: a quarter of h is left
    faded = head(query, neighbors, one_hot([0, 0, 1], 2).float())
    odds = 4**0.25
    torch.testing.assert_close(faded, torch.tensor([[2, odds]]) / (2 + odds))


def test_smoothing_on_paper():
    """A class that no neighbour has is as probable as its frequency times the smoothing."""
    head = ClassHead(prior=torch.tensor([0.7, 0.3])).eval()
    torch.nn.init.constant_(head.logit_smoothing, math.log(0.1 / 0.9))
    probabilities = head(torch.zeros(1, 1), torch.ones(2, 1), one_hot([0, 0], 2).float())
    torch.testing.assert_close(probabilities, torch.tensor([[0.9 + 0.07, 0.03]]))


def test_without_smoothing_training_alone_has_some():
    head = ClassHead(prior=torch.tensor([0.5, 0.5]), smoothing=False)
    rows = torch.zeros(1, 1), torch.ones(2, 1), one_hot([0, 0], 2).float()
    assert head.train()(*rows)[0, 1] > 0
    assert head.eval()(*rows)[0, 1] == 0


def test_outputs_are_normalised_each_by_itself():
    torch.manual_seed(0)
    targets = torch.cat([one_hot([0, 1, 2, 1], 3), one_hot([1, 1, 0, 1], 2)], dim=1).float()
    head = ClassHead(prior=targets.mean(dim=0), sizes=(3, 2), n_adjusted=5).eval()
    query, neighbors = torch.randn(6, 8), torch.randn(4, 8)
    probabilities = head(query, neighbors, targets)
    for place in (slice(0, 3), slice(3, 5)):
        alone = ClassHead(prior=head.prior[place], n_adjusted=place.stop - place.start).eval()
        columns = [0, 1, 2, *range(3 + place.start, 3 + place.stop)]
        expected = alone(query[:, columns], neighbors[:, columns], targets[:, place])
        torch.testing.assert_close(probabilities[:, place], expected)


def test_any_size_of_odds_is_finite():
    head = ClassHead(prior=torch.tensor([0.5, 0.5]), smoothing=False, n_adjusted=2).eval()
    query = torch.tensor([[0.0, 1e4, -1e4]], requires_grad=True)
    probabilities = head(query, torch.ones(2, 3), one_hot([0, 1], 2).float())
    assert probabilities.tolist() == [[1, 0]]
    probabilities.sum().backward()
    assert query.grad.isfinite().all()


def test_gradients():
    torch.manual_seed(0)
    head = ClassHead(
        step=SoftStep("s2"),
        prior=torch.tensor([0.5, 0.2, 0.3]),
        learn_temperature=True,
        n_adjusted=3,
    )
    head.double().train()
    inputs = [torch.randn(n, 5, dtype=torch.float64, requires_grad=True) for n in (3, 6)]
    targets = one_hot([0, 1, 2, 0, 1, 2], 3)
    assert torch.autograd.gradcheck(lambda q, n: head(q, n, targets), inputs)


# -- tile by tile -----------------------------------------------------------------------------


def evaluation(seed, sizes=(3,), n_heads=2, smoothing=True, adjusts=True, exclude=False):
    """A question with everything in it, in float64, and its targets."""
    torch.manual_seed(seed)
    n_classes = sum(sizes)
    labels = [torch.randint(size, (40,)) for size in sizes]
    targets = torch.cat([one_hot(y, size) for y, size in zip(labels, sizes, strict=True)], 1)
    heads = []
    for _ in range(n_heads):
        head = ClassHead(
            prior=targets.mean(dim=0),
            sizes=sizes,
            smoothing=smoothing,
            n_adjusted=n_classes if adjusts else 0,
        )
        if adjusts:
            head.trust_radius.fill_(1.0)
        heads.append(head)
    head = (AverageHead(heads) if n_heads > 1 else heads[0]).double().eval()
    width = n_heads * (2 + n_classes * adjusts)
    bank = torch.randn(40, width, dtype=torch.float64)
    query = bank if exclude else torch.randn(15, width, dtype=torch.float64)
    labels = torch.arange(40)
    unit = torch.ones(n_classes, dtype=torch.float64)
    neighbors = Neighbors(bank, targets, torch.randn(40, dtype=torch.float64), unit)
    return Evaluation(head, neighbors, query, LabelExclusion(labels, labels) if exclude else None)


CASES = [
    {},
    {"n_heads": 1},
    {"sizes": (2, 4)},
    {"smoothing": False, "adjusts": False},
    {"adjusts": False},
    {"exclude": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_are_equal_to_the_head(case):
    evaluated = evaluation(0, **case)
    torch.testing.assert_close(evaluated.mean(), evaluated.attend().detach(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_probabilities_are_sums_of_what_neighbours_add(case):
    evaluated = evaluation(1, **case)
    weights, positions, adjusted = evaluated.heaviest(40 - bool(case.get("exclude")))
    added = (weights[..., None] * adjusted).sum(dim=1)
    rest = evaluated.mean() - added  # what smoothing adds
    assert (rest > -1e-6).all()
    if not case.get("smoothing", True):
        torch.testing.assert_close(rest, torch.zeros_like(rest), atol=1e-6, rtol=0)
    own = evaluated.neighbors.values[positions]
    assert ((adjusted > 0) <= (own > 0)).all()  # a neighbour adds to its own class alone


@pytest.mark.parametrize("case", CASES, ids=str)
def test_influence_is_what_leaving_out_does(case):
    """Where nothing depends on which row is nearest: without a reach."""
    evaluated = evaluation(2, **case)
    for head, _, _ in evaluated.head.split_by_head(
        evaluated.query, evaluated.neighbors.embeddings
    ):
        if head.n_adjusted:
            head.trust_radius.fill_(math.inf)
    before = evaluated.mean()
    _, change, _ = evaluated.influence()
    for j in (0, 7):
        kept = torch.arange(40) != j
        exclusion = evaluated.exclusion
        if exclusion is not None:
            exclusion = LabelExclusion(exclusion.queries, exclusion.neighbors[kept])
        without = Evaluation(
            evaluated.head, evaluated.neighbors[kept], evaluated.query, exclusion
        ).mean()
        expected = (without - before).square().sum(dim=1).mean()
        torch.testing.assert_close(change[j], expected, rtol=1e-4, atol=1e-9)


def test_without_admitted_neighbours_the_frequencies_remain():
    evaluated = evaluation(3, n_heads=1, adjusts=False)
    same = torch.zeros(15, dtype=torch.long)
    every_pair = LabelExclusion(same, torch.zeros(40, dtype=torch.long))
    alone = Evaluation(evaluated.head, evaluated.neighbors, evaluated.query, every_pair)
    expected = evaluated.head.prior.expand(15, -1)
    torch.testing.assert_close(alone.mean(), expected.detach())


# -- targets ----------------------------------------------------------------------------------


def test_labels_become_rows():
    targets = ClassTargets().fit(["b", "a", "b", "c"])
    assert targets.values(["a", "c"]).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert targets.frequencies.tolist() == [0.25, 0.5, 0.25]
    assert targets.decode(torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])).tolist() == ["b", "a"]


def test_outputs_stand_side_by_side():
    y = np.array([["b", "x"], ["a", "x"], ["a", "y"]])
    targets = ClassTargets().fit(y, sample_weight=[2, 1, 1])
    assert targets.sizes == (2, 2)
    assert targets.frequencies.tolist() == [0.5, 0.5, 0.75, 0.25]
    assert targets.decode(targets.values(y)).tolist() == y.tolist()


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    n_networks=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_splits_are_stratified(counts, n_networks, seed):
    """Each set of validation rows has its share of each class, but for less than two rows."""
    labels = np.repeat(np.arange(len(counts)), counts)
    if len(labels) < 8:
        return
    values = ClassTargets().fit(labels).values(labels)
    splits = ClassTargets().split(values, None, n_networks, 0.2, np.random.RandomState(seed))
    assert len(splits) == n_networks
    for train, valid, _ in splits:
        assert sorted([*train, *valid]) == list(range(len(labels)))
        found = np.bincount(labels[valid], minlength=len(counts))
        share = len(valid) / len(labels)
        assert (np.abs(found - share * np.array(counts)) < 2).all()


def test_splits_keep_groups_together_and_stratified():
    labels = np.repeat([0, 1], [60, 20])
    groups = np.repeat(np.arange(20), 4)
    values = ClassTargets().fit(labels).values(labels)
    for train, valid, _ in ClassTargets().split(values, groups, 3, 0.2, np.random.RandomState(0)):
        assert not {*groups[train]} & {*groups[valid]}
        assert 0.5 <= labels[valid].mean() / 0.25 <= 1.5


def test_indicators_of_labels():
    """Each column is there or not: as sets of labels, which AS-Softmax then learns together."""
    tags = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    for y in (tags, tags > 0, tags.astype(float), (tags > 0).astype(object)):
        assert isinstance(ClassTargets(0.1).fit(y).loss(), MultilabelASSoftmaxLoss)
    always, never = np.ones((3, 1), int), np.zeros((3, 1), int)
    for y in (
        np.hstack([tags, always]),
        np.hstack([always, tags, never]),
        tags.astype(str),
        tags + 2 * np.arange(3),
    ):
        targets = ClassTargets(0.1).fit(y)
        assert isinstance(targets.loss(), ASSoftmaxLoss)
        assert targets.decode(targets.values(y)).tolist() == y.tolist()


@pytest.mark.filterwarnings("ignore:y holds one class only")
def test_as_softmax_of_an_indicator_matrix_with_constant_columns(iris):
    X, X_test, y, _ = iris
    tags = np.column_stack([y == 0, y >= 0, y < 0]).astype(int)
    model = nona(loss="as_softmax").fit(X, tags)
    assert [len(classes) for classes in model.classes_] == [2, 1, 1]
    assert (model.predict(X_test)[:, 1:] == [1, 0]).all()


LABELS = np.array([0, 1, 2, 1])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array([b"a", b"b", b"c"])[LABELS], [b"a", b"b", b"c"]),
        (np.array([b"a", b"b", b"c"], object)[LABELS], [b"a", b"b", b"c"]),
        ((LABELS > 0).astype(object), [False, True]),
        (LABELS.astype(object), [0, 1, 2]),
        (pd.Series([1.0, 2.0, 2.0, 1.0], dtype=object), [1.0, 2.0]),
        (pd.Series(["a", "b", "a", "a"], dtype="category"), ["a", "b"]),
        (pd.Series([True, None], dtype="boolean").fillna(False).repeat(2), [False, True]),
    ],
    ids=str,
)
def test_kinds_of_labels(labels, classes):
    targets = ClassTargets().fit(labels)
    assert targets.classes[0].tolist() == classes
    assert [type(label) for label in targets.classes[0].tolist()] == [type(c) for c in classes]
    assert targets.decode(targets.values(labels)).tolist() == np.asarray(labels).tolist()


def test_outputs_of_different_kinds(iris):
    """Outputs of different types keep their types side by side."""
    X, X_test, y, y_test = iris
    frame = pd.DataFrame({"name": np.array(["a", "b", "c"])[y], "is": y > 0, "number": y * 10})
    model = softstep_knn().fit(X, frame)
    assert [c.tolist() for c in model.classes_] == [["a", "b", "c"], [False, True], [0, 10, 20]]
    predicted = model.predict(X_test)
    assert {tuple(map(type, row)) for row in predicted} == {(str, bool, int)}
    expected = np.column_stack([y_test > 0, y_test * 10])
    assert (predicted[:, 1:] == expected).mean() > 0.9
    truth_values = softstep_knn().fit(X, frame[["is", "number"]]).predict(X_test)[:, 0]
    assert {*map(type, truth_values)} == {bool}


def test_a_label_of_another_kind_is_unseen():
    """NumPy's own look-up among many takes 1 for '1'."""
    targets = ClassTargets().fit([str(i // 3) for i in range(120)])
    with pytest.raises(ValueError, match="got 1 in row 0"):
        targets.values([1, 0])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            csr_array(np.eye(3)),
            r"y must be dense, got a sparse matrix; y\.toarray\(\) makes it so",
        ),
        (3, "y must hold a label for each row, got 3$"),
        ("fox", "y must hold a label for each row, got 'fox'$"),
        (np.zeros((3, 2, 2)), r"shape \(n,\) or \(n, n_outputs\), got \(3, 2, 2\)"),
        (np.zeros((3, 0)), r"shape \(n,\) or \(n, n_outputs\), got \(3, 0\)"),
        (
            [Decimal(1), Decimal(2)],
            r"got Decimal: Decimal\('1'\) in row 0; y\.astype\(str\) makes",
        ),
        (pd.period_range("2020", periods=2, freq="M"), r"got Period: Period\('2020-01', 'M'\) in"),
        (np.array(["a", 1], object), "of one kind, .*, got int, str: 1 in row 1; "),
        (np.array([True, "1"], object), "of one kind, .*, got bool, str: True in row 0; "),
        (np.array(["a", b"a"], object), "of one kind, .*, got bytes, str: b'a' in row 1; "),
        (pd.Series([(1, 2), (3,)]), "MultiLabelBinarizer"),
        ([1, np.inf], "Input y contains infinity: inf in row 1$"),
        (np.array([1, np.inf], object), "continuous. y must hold classes, got inf in row 1; "),
        ([1, 1e300], r"continuous. y must hold classes, got 1e\+300 in row 1; "),
        (pd.Series([1, 2.5], ["p", "q"]), r"got 2\.5 in row 1 \(index 'q'\); for numbers use"),
        (
            pd.DataFrame({"kind": [1, 2], "price": [3.0, 2.5]}, ["p", "q"]),
            r"got 2\.5 in row 1 \(index 'q'\) of output 'price'; for numbers use NONARegressor",
        ),
        (
            pd.DataFrame({"kind": ["a", "b"], "tail": ["x", None]}, ["p", "q"]),
            r"a missing label in row 1 \(index 'q'\) of output 'tail'$",
        ),
        (
            pd.DataFrame({"kind": [1.0, 2.0], "tail": [np.nan, 1.0]}, ["p", "q"]),
            r"NaN: nan in row 0 \(index 'p'\) of output 'tail'; fit an estimator for each output",
        ),
        (
            pd.DataFrame({"kind": ["a", "b"], "tail": [1, "x"]}, ["p", "q"]),
            r"got int, str: 1 in row 0 \(index 'p'\) of output 'tail'",
        ),
        (np.array([["a", "x"], ["b", None]], object), "a missing label in row 1 of output 1$"),
    ],
    ids=str,
)
def test_what_are_no_labels(y, message):
    with pytest.raises(ValueError, match=message):
        ClassTargets().fit(y)


def test_labels_go_by_the_numbers_of_their_rows():
    for wrong in (None, 3):
        y = pd.Series(["a", wrong], [4, 9], dtype=object)
        with pytest.raises(ValueError, match=r"in row 9($|;)"):
            ClassTargets().check(y, rows=np.array([4, 9]))


# -- labels of any kind -----------------------------------------------------------------------


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    "names",
    [["setosa", "versicolor", "virginica"], [10, -3, 7], [True, False, True], [0.0, 1.0, 2.0]],
    ids=str,
)
def test_labels_of_any_type(make, names, iris):
    X, X_test, y, y_test = iris
    named = np.array(names)
    model = make(max_iter=30).fit(X, named[y])
    assert model.classes_.tolist() == sorted(set(names))
    assert set(model.predict(X_test)) <= set(names)
    assert model.predict_proba(X_test).shape == (50, len(set(names)))
    assert model.score(X_test, named[y_test]) > 0.8


def test_the_name_of_a_class_means_nothing(iris):
    """Another order of the same classes gives the same probabilities, but for float32's sums."""
    X, X_test, y, _ = iris
    knn = softstep_knn(max_iter=1, validation_fraction=None)  # splits are drawn class by class
    by_number = clone(knn).fit(X, y).predict_proba(X_test)
    renamed = clone(knn).fit(X, np.array(["c", "a", "b"])[y])
    np.testing.assert_allclose(renamed.predict_proba(X_test)[:, [2, 0, 1]], by_number, atol=1e-4)


@pytest.mark.parametrize("make", BOTH)
def test_probabilities(make, iris):
    X, X_test, y, _ = iris
    model = make().fit(X, y)
    for queries in (X_test, None):
        probabilities = model.predict_proba(queries)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
        assert (probabilities > 0).all()
        np.testing.assert_array_equal(
            model.predict(queries), model.classes_[probabilities.argmax(axis=1)]
        )
        np.testing.assert_allclose(model.predict_log_proba(queries), np.log(probabilities))


@pytest.mark.parametrize(
    "model",
    [nona(adjust=False), softstep_knn(smoothing=False, trend=None)],
    ids=["nona", "softstep"],
)
def test_the_papers_form_is_weights_at_one_hot(model, iris):
    X, X_test, y, _ = iris
    model.fit(X, y)
    for queries in (X_test, None):
        votes = model.neighbor_weights(queries) @ np.eye(3)[y]
        np.testing.assert_allclose(model.predict_proba(queries), votes, atol=1e-6)


def test_what_they_are():
    assert is_classifier(NONAClassifier())
    assert is_classifier(SoftStepKNeighborsClassifier())
    with pytest.raises(NotFittedError):
        NONAClassifier().predict([[1.0]])


@pytest.mark.slow
@pytest.mark.parametrize("make", BOTH)
def test_many_classes(make):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(150, 3))
    y = np.arange(450) % 150
    X = centers[y] + 0.01 * rng.normal(size=(450, 3))
    model = make(max_iter=5).fit(X, y)
    assert model.predict_proba(X[:5]).shape == (5, 150)
    assert model.score(None, y) > 0.5


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("validation_fraction", [None, 0.15])
def test_one_class_and_classes_of_one_row(make, validation_fraction, iris):
    X, X_test, y, _ = iris
    model = make(validation_fraction=validation_fraction)
    with pytest.warns(UserWarning, match="y holds one class only, 'only'"):
        alone = clone(model).fit(X, np.full(100, "only"))
    assert (alone.predict_proba(X_test) == 1).all()
    rare = y.copy()
    rare[:2] = [7, 8]
    probabilities = clone(model).fit(X, rare).predict_proba(X_test)
    assert probabilities.shape == (50, 5)
    assert np.isfinite(probabilities).all()
    assert (probabilities > 0).all()


@pytest.mark.parametrize("make", BOTH)
def test_several_outputs(make, iris):
    X, X_test, y, y_test = iris
    both = np.column_stack([np.array(["a", "b", "c"])[y], np.where(y > 0, "yes", "no")])
    model = make(max_iter=30).fit(X, both)
    assert [c.tolist() for c in model.classes_] == [["a", "b", "c"], ["no", "yes"]]
    assert [p.shape for p in model.predict_proba(X_test)] == [(50, 3), (50, 2)]
    assert [p.shape for p in model.predict_log_proba(X_test)] == [(50, 3), (50, 2)]
    predicted = model.predict(X_test)
    assert predicted.shape == (50, 2)
    assert (predicted[:, 1] == np.where(y_test > 0, "yes", "no")).mean() > 0.9


@pytest.mark.parametrize("make", BOTH)
def test_an_indicator_matrix(make, iris):
    X, X_test, y, y_test = iris
    tags = np.column_stack([y == 0, y > 0, y == 2]).astype(int)
    model = make(max_iter=30).fit(X, tags)
    predicted = model.predict(X_test)
    assert predicted.shape == (50, 3)
    assert (predicted[:, 0] == (y_test == 0)).mean() > 0.9
    assert model.score(X_test, np.column_stack([y_test == 0, y_test > 0, y_test == 2])) > 0.7


def test_a_column_is_one_output(iris):
    X, X_test, y, _ = iris
    with pytest.warns(DataConversionWarning):
        column = softstep_knn().fit(X, y[:, None])
    np.testing.assert_array_equal(
        column.predict_proba(X_test), softstep_knn().fit(X, y).predict_proba(X_test)
    )


# -- weights of classes and rows --------------------------------------------------------------


@pytest.mark.parametrize("make", BOTH)
def test_class_weight_is_a_sample_weight(make, iris):
    X, X_test, y, _ = iris
    by_class = make(class_weight={0: 1, 1: 3, 2: 1}).fit(X, y)
    by_row = make().fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_array_equal(by_class.predict_proba(X_test), by_row.predict_proba(X_test))


def test_balanced_classes_count_alike():
    X, y = make_classification(200, weights=[0.9], flip_y=0.2, random_state=0)
    plain, balanced = (
        softstep_knn(class_weight=weight).fit(X, y).predict_proba(X)[:, 1].mean()
        for weight in (None, "balanced")
    )
    assert balanced > plain + 0.1


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            np.linspace(0, 9, 100),
            r"continuous. y must hold classes, got 0\.09.* in row 1; for numbers use "
            "NONARegressor or SoftStepKNeighborsRegressor",
        ),
        (np.r_[np.nan, np.zeros(99)], "Input y contains NaN"),
        (np.zeros(99), "inconsistent numbers of samples"),
    ],
    ids=["continuous", "NaN", "length"],
)
def test_bad_classes_lose_nothing(make, y, message, iris):
    X, X_test, good, _ = iris
    model = make().fit(X, good)
    before = model.predict_proba(X_test)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X_test), before)


def test_an_unseen_label_does_not_join(iris):
    X, X_test, y, _ = iris
    model = softstep_knn().fit(X, np.array(["a", "b", "c"])[y])
    before = model.predict_proba(X_test)
    with pytest.raises(ValueError, match="got 'd' in row 1; fit anew"):
        model.add_neighbors(X_test[:2], ["a", "d"])
    np.testing.assert_array_equal(model.predict_proba(X_test), before)


def test_a_bank_without_one_of_the_classes(iris):
    X, X_test, y, _ = iris
    model = softstep_knn().fit(X, y)
    model.remove_neighbors(ids=np.flatnonzero(y == 2))
    assert model.classes_.tolist() == [0, 1, 2]
    assert (model.predict_proba(X_test)[:, 2] < 0.2).all()


@pytest.mark.parametrize("regressor", [NONARegressor, SoftStepKNeighborsRegressor])
def test_the_error_of_a_regressor_names_the_classifier(regressor, iris):
    X, _, y, _ = iris
    with pytest.raises(ValueError, match=r"'b'.*NONAClassifier"):
        regressor(max_iter=1).fit(X, np.array(["b", "a", "c"])[y * 0])


# -- used for real ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return (
        X[:160],
        X[160:260],
        np.array(["malignant", "benign"])[y[:160]],
        np.array(["malignant", "benign"])[y[160:260]],
    )


@pytest.fixture
def clf():
    return NONAClassifier(n_estimators=1, max_iter=12, random_state=0)


@pytest.mark.slow
def test_calibrated(cancer, clf):
    X, X_test, y, y_test = cancer
    model = CalibratedClassifierCV(clf, cv=2).fit(X, y)
    assert log_loss(y_test, model.predict_proba(X_test)) < 0.4


@pytest.mark.slow
def test_tuned_threshold(cancer, clf):
    X, X_test, y, y_test = cancer
    model = TunedThresholdClassifierCV(clf, cv=2, scoring="balanced_accuracy").fit(X, y)
    assert model.score(X_test, y_test) > 0.85


@pytest.mark.slow
def test_voting_and_stacking(cancer, clf):
    X, X_test, y, y_test = cancer
    models = [("nona", clf), ("softstep", softstep_knn())]
    voting = VotingClassifier(models, voting="soft").fit(X, y)
    stacking = StackingClassifier(models, LogisticRegression(), cv=2).fit(X, y)
    assert voting.score(X_test, y_test) > 0.85
    assert stacking.score(X_test, y_test) > 0.85


@pytest.mark.slow
def test_one_versus_rest(iris):
    X, X_test, y, y_test = iris
    model = OneVsRestClassifier(softstep_knn()).fit(X, y)
    assert model.score(X_test, y_test) > 0.8


@pytest.mark.slow
def test_search_in_a_pipeline(cancer):
    X, _, y, _ = cancer
    pipe = make_pipeline(StandardScaler(), softstep_knn())
    grid = {"softstepkneighborsclassifier__softstep": ["s1", "s2"]}
    search = GridSearchCV(pipe, grid, cv=2, scoring="neg_log_loss", error_score="raise").fit(X, y)
    assert search.best_score_ > -0.5


@pytest.mark.slow
def test_learning_curve_and_cross_val_predict(iris):
    X, _, y, _ = iris
    _, train, test = learning_curve(softstep_knn(), X, y, train_sizes=[0.5, 1.0], cv=2)
    assert np.isfinite([train, test]).all()
    probabilities = cross_val_predict(softstep_knn(), X, y, cv=2, method="predict_proba")
    assert probabilities.shape == (100, 3)


def test_decision_boundary(iris):
    X, _, y, _ = iris
    model = softstep_knn().fit(X[:, :2], y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        display = DecisionBoundaryDisplay.from_estimator(
            model, X[:, :2], grid_resolution=10, response_method="predict_proba"
        )
    assert display.response.shape == (10, 10, 3)


def test_raw_table():
    rng = np.random.default_rng(0)
    color = rng.choice(["red", "green", "blue"], 120)
    size = np.where(rng.random(120) < 0.2, np.nan, rng.normal(size=120))
    frame = pd.DataFrame({"color": color, "size": size})
    y = pd.Series(np.where(color == "red", "stop", "go"), name="sign")
    model = softstep_knn().fit(frame, y)
    assert model.score(frame, y) > 0.95
    assert model.target_names_ == ("sign",)


def test_same_seed_same_result(iris):
    X, X_test, y, _ = iris
    once, again = (nona().fit(X, y).predict_proba(X_test) for _ in range(2))
    np.testing.assert_array_equal(once, again)


def test_a_class_head_is_a_head():
    assert isinstance(ClassHead(prior=torch.ones(2) / 2), NONAHead)


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT])
def test_a_missing_label_is_named_by_its_row(gap, iris):
    X, _, y, _ = iris
    labels = np.array(["a", "b", "c"], dtype=object)[y]
    labels[3] = gap
    with pytest.raises(ValueError, match="Input y contains a missing label in row 3"):
        softstep_knn().fit(X, pd.Series(labels))


@pytest.mark.parametrize("make", BOTH)
def test_as_softmax_with_margin_1_is_the_log_loss(make, iris):
    X, X_test, y, _ = iris
    by_log_loss, by_as_softmax, pushed_less = (
        make(max_iter=1, **params).fit(X, y).predict_proba(X_test)
        for params in ({}, {"loss": ASSoftmax(margin=1.0)}, {"loss": "as_softmax"})
    )
    np.testing.assert_allclose(by_as_softmax, by_log_loss, atol=1e-3)  # of float32 steps
    assert np.abs(pushed_less - by_log_loss).max() > 1e-3


def test_as_softmax_of_earlier_files_has_its_margin():
    """They also hold a `max_accumulation`, the largest number of batches in a step."""
    stored = {"margin": 0.2, "max_accumulation": 2}
    assert UPGRADES[ASSoftmax](stored) == {"margin": 0.2}


def test_as_softmax_of_an_indicator_matrix(iris):
    X, X_test, y, y_test = iris
    tags = np.column_stack([y == 0, y > 0, y == 2]).astype(int)
    model = nona(loss="as_softmax", max_iter=30).fit(X, tags)
    assert (model.predict(X_test)[:, 0] == (y_test == 0)).mean() > 0.9


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss": ASSoftmax(margin=1.5)}, "'margin' parameter"),
        ({"loss": "hinge"}, "'loss' parameter"),
        ({"class_weight": {7: 1.0}}, "class_weight must be for the classes of y, .* got 7"),
    ],
    ids=str,
)
def test_bad_parameters(params, message, iris):
    with pytest.raises(ValueError, match=message):
        nona(**params).fit(iris[0], iris[2])


def test_training_ends_where_classes_are_apart():
    """The log loss would fall by shares of itself for ever."""
    X = np.repeat([[-1.0], [1.0]], 40, axis=0) + np.linspace(0, 0.1, 80)[:, None]
    model = nona(max_iter=200).fit(X, X[:, 0] > 0)
    assert model.n_iter_ < 100
    assert model.score(None, X[:, 0] > 0) == 1


# -- going on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BOTH)
def test_a_warm_start_needs_the_same_classes(make, iris):
    X, X_test, y, _ = iris
    model = make(warm_start=True, max_iter=2).fit(X, np.array(["a", "b", "c"])[y])
    before = model.predict_proba(X_test)
    for labels, shown in (
        (["A", "b", "c"], r"\['A', 'b', 'c'\]"),
        (["a", "b", "b"], r"\['a', 'b'\]"),
        ([0, 1, 2], r"\[0, 1, 2\]"),
        ([[1, "x"], [2, "x"], [1, "y"]], r"\[\['1', '2'\], \['x', 'y'\]\]"),
    ):
        message = rf"needs the classes of the earlier fit, \['a', 'b', 'c'\], got {shown}$"
        with pytest.raises(ValueError, match=message):
            model.fit(X, np.array(labels)[y])
        np.testing.assert_array_equal(model.predict_proba(X_test), before)
    with pytest.raises(ValueError, match="needs the number of features"):
        model.fit(X[:, :3], np.array(["a", "b", "c"])[y])


@pytest.mark.parametrize("make", BOTH)
def test_a_warm_start_updates_the_frequencies_of_the_classes(make, iris):
    X, _, y, _ = iris
    model = make(warm_start=True, max_iter=2).fit(X, y)
    some = np.r_[np.flatnonzero(y == 0)[:5], np.flatnonzero(y)]
    model.fit(X[some], y[some])
    now = np.bincount(y[some]) / len(some)
    for head in heads_of(model):
        np.testing.assert_allclose(head.prior, now, rtol=1e-6)


# -- what is refined --------------------------------------------------------------------------


def heads_of(model):
    head = model.network_.head
    return [head] if isinstance(head, ClassHead) else list(head.heads)


@pytest.mark.parametrize("certain", [False, True])
def test_how_sure_a_network_may_be_is_refined(certain):
    """Less where labels are random, more where they are certain."""
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=400)
    labels = one_hot(side if certain else rng.permutation(side), 2)
    X = torch.from_numpy(rng.normal(size=(400, 5)) + np.outer(2 * side - 1, [3, 0, 0, 0, 0]))
    head = ClassHead(prior=torch.tensor([0.5, 0.5]), learn_temperature=True).double().eval()
    head.log_temperature.data.fill_(math.log(0.3))
    smoothing = head.logit_smoothing.item()
    evaluation = Evaluation(head, Neighbors(X[:200], labels[:200]), X[200:])
    refine(evaluation, LogLoss().eval(), labels[200:])
    warmer = head.log_temperature.item() - math.log(0.3)
    smoother = head.logit_smoothing.item() - smoothing
    assert warmer < -0.2 if certain else warmer > 0.2  # more than for numbers
    assert smoother < -0.2 if certain else smoother > 0.2


@pytest.mark.parametrize("make", BOTH)
def test_validation_rows_determine_how_sure_a_network_may_be(make):
    """Where classes are apart, and where they are random; steps are too small to learn."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    apart, anything = rng.normal(size=(2, 400, 2))
    apart[:, 0] += 10 * y
    params = {"max_iter": 1, "training": TrainingOptions(learning_rate_init=1e-9)}
    params["n_neighbors"] = None  # which would be chosen as well
    (start,), (sure,), (unsure,) = (
        heads_of(make(validation_fraction=fraction, **params).fit(X, y))
        for X, fraction in ((apart, None), (apart, 0.5), (anything, 0.5))
    )
    assert sure.logit_smoothing < start.logit_smoothing - 0.1
    if make is nona:  # whose untrained space is guided by the odds it holds, where nothing helps
        assert sure.log_temperature < start.log_temperature - 0.1
    else:
        assert unsure.log_temperature > start.log_temperature + 0.2  # more than for numbers
        assert unsure.logit_smoothing > start.logit_smoothing + 0.1


def test_the_temperature_of_classes_is_learned_and_used(iris):
    X, X_test, y, _ = iris
    clf = nona(validation_fraction=None, n_neighbors=None)
    start, learned = (
        clone(clf).set_params(training__learning_rate_init=rate).fit(X, y) for rate in (1e-9, 0.01)
    )
    (before,), (after,) = heads_of(start), heads_of(learned)
    assert abs(after.log_temperature - before.log_temperature) > 1e-3
    probabilities = learned.predict_proba(X_test)
    with torch.no_grad():
        after.log_temperature += math.log(1000)  # all rows are as near as any other
    np.testing.assert_allclose(learned.neighbor_weights(X_test).toarray(), 1 / len(y), rtol=0.1)
    assert np.abs(learned.predict_proba(X_test) - probabilities).max() > 0.01
    (fixed,) = heads_of(nona(weighting=Softmax(learn_temperature=False), max_iter=1).fit(X, y))
    assert fixed.temperature == 1


@pytest.mark.parametrize("classifier", [NONAClassifier, SoftStepKNeighborsClassifier])
def test_by_default_validation_rows_are_set_aside(classifier, iris):
    X, _, y, _ = iris
    model = classifier(max_iter=1, random_state=0).fit(X, y)
    for rows in model.validation_indices_:
        assert len(rows) == 15
        assert set(y[rows]) == {0, 1, 2}
    assert all(np.isfinite(epoch["valid_loss"]) for epoch in model.history_)
