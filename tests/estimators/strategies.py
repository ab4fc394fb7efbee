"""Cases for the fuzzer: legal parameters, as the estimators' constraints state them, and data.

Hypothesis draws what a case is made of. The numbers themselves come from a generator whose seed it
draws: drawn one by one, they would take longer than the fit.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch
from hypothesis import strategies as st
from pandas.api.types import is_string_dtype
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from skorch.callbacks import LRScheduler
from torch import nn

from nona_sklearn import (
    ASSoftmax,
    FeatureExtractor,
    NONAClassifier,
    SoftStep,
    SoftStepKNeighborsClassifier,
    TableEncoder,
)
from nona_sklearn.softstep import STEP_SCALES
from nona_sklearn.weighting import (
    WEIGHTINGS,
    Entmax,
    Preconditioned,
    SparseSoftmax,
    make_weighting,
)

CLASSIFIERS = (NONAClassifier, SoftStepKNeighborsClassifier)

#: The most that is drawn of a parameter, so that a case takes some tenths of a second.
MOST = {
    "embedding_dim": 8,
    "learning_rate_init": 0.5,
    "max_iter": 3,
    "n_estimators": 2,
    "pool_size": 64,
    "validation_fraction": 0.5,
    "weight_decay": 2.0,
}
USUAL_MOST = 12  # of the others
#: Sizes that cost nothing where they are beyond the number of rows, or of epochs.
UNBOUNDED = {"batch_size", "micro_batch_size", "n_iter_no_change", "pool_size"}
ALWAYS = ("max_iter", "n_estimators")  # their defaults take too long

WEIGHTING_OBJECTS = (
    st.builds(SparseSoftmax, st.integers(1, 6))
    | st.builds(Preconditioned, st.integers(1, 6))
    | st.builds(Entmax, st.sampled_from([1.0, 1.01, 1.5, 2.0]))
    | st.builds(Entmax, st.sampled_from([1.01, 1.5, 1.99]), st.just(True))
)
STEPS = st.sampled_from(["s1", "s2"])
STEP_OBJECTS = st.builds(
    SoftStep, STEPS, st.sampled_from(["global", "pointwise"]), st.sampled_from(sorted(STEP_SCALES))
)
WIDTHS = st.sampled_from([(), 1, 4, (4,), [3, 3], np.array([2, 5]), np.int64(6)])

#: Parameters of which a constraint gives the type alone. Those that depend on the data are in
#: :func:`cases`.
BEYOND_CONSTRAINTS = {
    "algorithm": st.sampled_from(["auto", "brute", "kd_tree"]),
    "callbacks": st.sampled_from([None, [], (), [LRScheduler()], (("rate", LRScheduler),)]),
    "device": st.sampled_from(["auto", "cpu", torch.device("cpu")]),
    "half_life": st.none(),  # cases have no times
    "hidden_layer_sizes": WIDTHS,
    "ignored_features": st.none(),  # test_rules.py has columns that are no features
    "loss": st.sampled_from(["log_loss", "as_softmax"]) | st.builds(ASSoftmax, st.floats(0, 1)),
    "max_time": st.sampled_from([None, 1e-9, 1e6]),  # the same number of epochs on any machine
    "min_frequency": st.integers(1, 5) | st.floats(1e-3, 0.5),
    "n_jobs": st.sampled_from([None, 1]),  # other processes take seconds to start
    "places": st.none(),  # test_places.py has coordinates
    "softstep": STEPS | STEP_OBJECTS,
    "weighting": st.sampled_from(sorted(WEIGHTINGS)) | WEIGHTING_OBJECTS,
}
OF_THE_DATA = {"bounds", "class_weight", "feature_extractor", "table_encoder"}
#: Of a feature extractor. An accelerator is one for the whole process; network/test_extractor.py
#: has it.
EXTRACTOR_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "learning_rate": st.floats(1e-6, 0.1),
        "micro_batch_size": st.none() | st.integers(1, 12),
        "precision": st.sampled_from(["float32", "bfloat16"]),
    },
)


# -- parameters ----------------------------------------------------------------------------


def parameters(kind: type) -> st.SearchStrategy[dict]:
    """Legal values of some parameters of an estimator; the others keep their defaults."""
    each = {
        name: values_of(name, constraints)
        for name, constraints in kind._parameter_constraints.items()
        if name not in OF_THE_DATA
    }
    each["trend"] |= st.builds(DummyClassifier if kind in CLASSIFIERS else DummyRegressor)
    always = {name: each.pop(name) for name in ALWAYS if name in each}
    return st.fixed_dictionaries(always, optional=each)


def values_of(name: str, constraints: list) -> st.SearchStrategy:
    """Values of a parameter that one of its constraints allows."""
    if name in BEYOND_CONSTRAINTS:
        values = BEYOND_CONSTRAINTS[name]
        return values | st.none() if None in constraints else values
    # Of objects with some methods, test_validation_set.py has splitters.
    drawn = [c for c in constraints if not isinstance(c, HasMethods)]
    return st.one_of([values_by(constraint, name) for constraint in drawn])


def objects(kind: type, **of_the_data: st.SearchStrategy) -> st.SearchStrategy:
    """Objects with legal values of some parameters; the others keep their defaults."""
    each = {
        name: values_of(name, constraints)
        for name, constraints in kind._parameter_constraints.items()
        if name not in of_the_data
    }
    return st.fixed_dictionaries({}, optional=each | of_the_data).map(lambda given: kind(**given))


def values_by(constraint: Any, name: str) -> st.SearchStrategy:
    """Values that a constraint allows."""
    match constraint:
        case None:
            return st.none()
        case StrOptions():
            return st.sampled_from(sorted(constraint.options))
        case Interval(type=type_) if type_ is Integral:
            return whole_numbers(constraint, name)
        case Interval():
            return real_numbers(constraint, MOST.get(name, USUAL_MOST))
        case "boolean":
            return st.booleans() | st.sampled_from([np.True_, np.False_])
        case "verbose":
            return st.sampled_from([False, 0, 1, True])
        case "random_state":
            return st.none() | st.integers(0, 2**32 - 1) | st.builds(np.random.RandomState, SEEDS)
        case type():
            return objects(constraint)
    raise ValueError(f"BEYOND_CONSTRAINTS must have values of {name!r}, which are {constraint!r}")


def whole_numbers(interval: Interval, name: str) -> st.SearchStrategy:
    """Small numbers of an interval, as Python's and as NumPy's; sometimes a huge one."""
    small = st.integers(interval.left, MOST.get(name, USUAL_MOST))
    huge = st.just(2**40) if name in UNBOUNDED else st.nothing()
    return small | small.map(np.int64) | huge


def real_numbers(interval: Interval, most: float) -> st.SearchStrategy:
    """Numbers of an interval, of any order of magnitude that matters; its closed ends."""
    most = most if interval.right is None else min(most, interval.right)
    ends = [end for end in (interval.left, interval.right) if end is not None and end in interval]
    within = st.floats(-6, 0).map(lambda exponent: 0.99 * most * 10**exponent)
    return within | within.map(np.float32) | (st.sampled_from(ends) if ends else st.nothing())


# -- tables --------------------------------------------------------------------------------

SEEDS = st.integers(0, 2**32 - 1)
ZONES = [None, "UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York", "Etc/GMT+5"]
EXTREME = [0.0, 1e-300, -1e-30, 1e9, 1e30, -1e300]


def generators() -> st.SearchStrategy[np.random.Generator]:
    """Sources of numbers."""
    return SEEDS.map(np.random.default_rng)


@st.composite
def numbers(draw, shape, extreme=True):
    """Draw numbers of some scale and offset, sometimes with duplicates or an extreme one."""
    rng = draw(generators())
    values = rng.normal(size=shape)
    match draw(st.sampled_from(["any", "any", "rounded", "repeated", "constant"])):
        case "rounded":
            values = np.round(values)
        case "repeated":
            values = values[rng.integers(0, max(1, shape[0] // 3), shape[0])]
        case "constant":
            values[:] = values[0]
    if draw(st.booleans()):
        values *= 10.0 ** draw(st.integers(-12, 12) | st.sampled_from([-200, -40, 40, 140]))
    values += draw(st.sampled_from([0.0, 0.0, 1.0, -1e6, 1e9]))
    if extreme and draw(st.integers(0, 7)) == 7:
        values.flat[rng.integers(values.size)] = draw(st.sampled_from(EXTREME))
    return values


@st.composite
def gaps(draw, shape):
    """Draw which of some values are missing: none, a few or all."""
    share = draw(st.sampled_from([0, 0, 0, 0.2, 0.6, 1]))
    return draw(generators()).random(shape) < share


@st.composite
def arrays(draw, n_rows, n_columns):
    """Draw a table of numbers in one of the forms that NumPy and Python have."""
    values = draw(numbers((n_rows, n_columns)))
    missing = draw(gaps(values.shape))
    with_gaps = np.where(missing, np.nan, values)
    forms = ["float", "float", "type", "type", "object", "list", "order", "masked"]
    match draw(st.sampled_from(forms)):
        case "type":
            types = ["float32", "float32", "float16", "int8", "uint64", "bool"]
            return np.clip(values, 0, 100).astype(draw(st.sampled_from(types)))
        case "object":
            return np.where(missing, None, values.astype(object))
        case "list":
            return with_gaps.tolist()
        case "order":
            return draw(st.sampled_from([np.asfortranarray, np.flipud, np.fliplr]))(with_gaps)
        case "masked":
            return np.ma.masked_array(values, mask=missing)
    return with_gaps


@st.composite
def dates(draw, n_rows):
    """Draw dates: with a clock or without, in a time zone or in none."""
    rng = draw(generators())
    unit = draw(st.sampled_from(["D", "h", "s", "ms"]))
    passed = pd.to_timedelta(rng.integers(0, 80_000, n_rows), unit=unit)  # pandas 2 ends in 2262
    times = pd.Series(pd.Timestamp(draw(st.sampled_from(["2020-02-28", "1969-12-31"]))) + passed)
    zone = draw(st.sampled_from(ZONES))
    return times if zone is None else times.dt.tz_localize("UTC").dt.tz_convert(zone)


@st.composite
def categories(draw, n_rows):
    """Draw strings: a few, or another one in each row; as such or as a categorical."""
    rng = draw(generators())
    levels = draw(st.sampled_from(["ab", "xyzäß", "".join(chr(65 + i) for i in range(n_rows))]))
    values = pd.Series(rng.choice(list(levels), n_rows), dtype=object)
    form = draw(st.sampled_from(["strings", "str", "categorical", "ordered"]))
    if form == "strings":
        return values
    if form == "str":
        return values.astype("str")
    return values.astype(pd.CategoricalDtype(sorted(levels), ordered=form == "ordered"))


def columns(n_rows):
    """Columns of every kind."""
    integers = generators().map(lambda rng: rng.integers(-5, 5, n_rows))
    return st.one_of(
        numbers((n_rows,)).map(pd.Series),
        integers.map(pd.Series),
        integers.map(lambda values: pd.Series(values, dtype="Int64")),
        integers.map(lambda values: pd.Series(values > 0)),
        integers.map(lambda values: pd.Series(pd.to_timedelta(values, unit="h"))),
        categories(n_rows),
        dates(n_rows),
        dates(n_rows).map(lambda times: times.dt.strftime("%Y-%m-%d")),
        dates(n_rows).map(lambda times: times.dt.strftime("%d.%m.%Y")),
        numbers((n_rows,)).map(lambda values: pd.Series([f"{value:,.3f} %" for value in values])),
        dates(n_rows).map(lambda times: times.dt.date),
    )


@st.composite
def frames(draw, n_rows, n_columns):
    """Draw a DataFrame of pandas or of polars, with columns of several kinds."""
    names = draw(st.sampled_from([["a", "b", "c", "d"], ["X", "", " y", "é'\""], [3, 1, 0, 2]]))
    table = pd.DataFrame(
        {name: draw(columns(n_rows)).mask(draw(gaps(n_rows))) for name in names[:n_columns]}
    )
    forms = ["polars", "rows", "rows", "names", "shuffled", "shared", "pairs"]
    match draw(st.sampled_from(forms)):
        case "polars":
            return pl.from_pandas(table.rename(columns=str))
        case "names":
            table.index = [f"row {i}" for i in range(n_rows)]
        case "shuffled":
            table.index = draw(generators()).permutation(n_rows) + 5
        case "shared":
            table.index = draw(generators()).choice(["p", "q"], n_rows)
        case "pairs":
            table.index = pd.MultiIndex.from_arrays([np.arange(n_rows) % 2, np.arange(n_rows)])
    return table


# -- targets, weights, groups --------------------------------------------------------------


@st.composite
def targets(draw, n_rows):
    """Draw targets of a regressor: one output or several, named or not."""
    n_outputs = draw(st.sampled_from([None, None, None, 1, 2, 3]))
    shape = (n_rows,) if n_outputs is None else (n_rows, n_outputs)
    values = draw(numbers(shape, extreme=False))
    forms = ["plain", "plain", "float32", "whole", "list", "pandas", "polars"]
    match draw(st.sampled_from(forms)):
        case "float32":
            return np.clip(values, -1e30, 1e30).astype(np.float32)
        case "whole":
            return np.round(np.clip(values, -9, 9)).astype(int)
        case "list":
            return values.tolist()
        case "polars":
            return pl.DataFrame(values) if n_outputs else pl.Series("price", values)
        case "pandas" if n_outputs is None:
            return pd.Series(values, name=draw(st.sampled_from([None, "price"])))
        case "pandas":
            return pd.DataFrame(values, columns=[f"t{j}" for j in range(n_outputs)])
    return values


@st.composite
def labels(draw, n_rows):
    """Draw labels of one output: of some type, as many as there are rows, or only one."""
    n_classes = draw(st.sampled_from([2, 3, 2, 5, 1, n_rows]))
    codes = draw(generators()).integers(0, n_classes, n_rows)
    match draw(st.sampled_from(["int", "str", "object", "bool", "float", "negative"])):
        case "str":
            return np.array([f"k{code}" for code in codes])
        case "object":
            return np.array([f"k{code}" for code in codes], dtype=object)
        case "bool":
            return codes % 2 == 0
        case "float":
            return codes.astype(float)
        case "negative":
            return codes - 2
    return codes


@st.composite
def classes(draw, n_rows):
    """Draw targets of a classifier: one output or several, or an indicator matrix."""
    match draw(st.sampled_from(["one", "one", "one", "several", "indicators", "pandas", "list"])):
        case "several":
            outputs = [draw(labels(n_rows)) for _ in range(draw(st.integers(2, 3)))]
            alike = len({output.dtype.kind for output in outputs}) == 1
            return np.stack(outputs if alike else [o.astype(object) for o in outputs], axis=1)
        case "indicators":
            return draw(generators()).integers(0, 2, (n_rows, 3))
        case "pandas":
            return pd.Series(draw(labels(n_rows)), name="kind")
        case "list":
            return draw(labels(n_rows)).tolist()
    return draw(labels(n_rows))


@st.composite
def sample_weights(draw, n_rows):
    """Draw what rows weigh, if they differ: some nothing, or over many orders of magnitude."""
    rng = draw(generators())
    match draw(st.sampled_from([*["none"] * 5, "some", "zeros", "wide", "counts", "equal"])):
        case "none":
            return None
        case "zeros":
            return rng.random(n_rows) * (rng.random(n_rows) < 0.7)
        case "wide":
            low, high = draw(st.sampled_from([(-9, 0), (-200, 90)]))
            return pd.Series(10.0 ** rng.uniform(low, high, n_rows))
        case "counts":
            return rng.integers(0, 3, n_rows).tolist()
        case "equal":
            return np.full(n_rows, 2.5)
    return rng.random(n_rows)


@st.composite
def groups(draw, n_rows):
    """Draw which rows belong together, if any do."""
    n_groups = draw(st.sampled_from([None, None, None, None, 2, 5, n_rows]))
    if n_groups is None:
        return None
    codes = draw(generators()).integers(0, n_groups, n_rows)
    return draw(st.sampled_from([codes, codes.astype(str), pd.Series(codes)]))


# -- cases ---------------------------------------------------------------------------------


@dataclass
class Case:
    """An estimator's parameters, and a table: the first rows are fitted, the last ones are not."""

    kind: type
    parameters: dict
    table: Any
    y: Any
    sample_weight: Any
    groups: Any

    def make(self) -> BaseEstimator:
        """Make an estimator, with copies of all that training changes."""
        return clone(self.kind(**self.parameters))

    def fit(self, estimator: BaseEstimator) -> BaseEstimator:
        """Fit an estimator to the first rows."""
        if estimator.random_state is None:  # it draws from a generator of the whole process
            check_random_state(None).seed(0)
        X = take(self.table, range(len(self.y)))
        return estimator.fit(X, self.y, sample_weight=self.sample_weight, groups=self.groups)


def take(table, rows):
    """Select rows of a table, or of targets, of any form."""
    return _safe_indexing(table, np.asarray(rows, dtype=int))


@st.composite
def cases(draw, kind):
    """Draw a case of an estimator."""
    n_rows = draw(st.integers(1, 9) | st.integers(4, 40) | st.integers(8, 40))
    n_columns, n_unseen = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    form = draw(st.sampled_from([arrays, frames]))
    table = draw(form(n_rows + n_unseen, n_columns))
    y = draw((classes if kind in CLASSIFIERS else targets)(n_rows))
    given = draw(parameters(kind)) | draw(parameters_of_data(kind, table, y))
    if draw(st.integers(0, 7)) < 7:  # mostly without what is refused whatever the data are
        given = {name: value for name, value in given.items() if name not in contradictory(given)}
    return Case(
        kind,
        given,
        table,
        y,
        draw(sample_weights(n_rows)),
        draw(groups(n_rows)),
    )


def contradictory(given):
    """Find the parameters that others contradict."""
    names = set()
    if given.get("hidden_layer_sizes", ()) is None and "feature_extractor" not in given:
        names.add("hidden_layer_sizes")
    if "weighting" in given and make_weighting(given["weighting"]).n_neighbors is not None:
        names.add("n_neighbors")
    if "feature_extractor" in given:
        names.add("trend")
    if not isinstance(given.get("n_neighbors"), Integral):
        names.add("algorithm")  # trees find a number of rows
    return names


def parameters_of_data(kind, table, y):
    """Parameters that name columns or classes, or that need rows of one type."""
    columns = {
        "categorical_features": categorical_features(table),
        "text_features": text_features(table),
    }
    some = {"table_encoder": st.none() | objects(TableEncoder, **columns)}
    if kind in CLASSIFIERS:
        some["class_weight"] = class_weights(y)
    else:
        some["bounds"] = bounds(y)
    if hasattr(kind(), "feature_extractor") and getattr(table, "dtype", None) == np.float32:
        module = nn.Linear(table.shape[1], 3)
        nested = EXTRACTOR_OPTIONS.map(lambda options: FeatureExtractor(module, **options))
        some["feature_extractor"] = st.just(module) | nested
    return st.fixed_dictionaries({}, optional=some)


@st.composite
def categorical_features(draw, table):
    """Draw some columns, by their names, by their numbers or as a mask; or none."""
    n_columns = np.shape(table)[1]
    chosen = draw(st.lists(st.booleans(), min_size=n_columns, max_size=n_columns))
    numbers = np.flatnonzero(chosen).tolist()
    names = np.array(getattr(table, "columns", range(n_columns)))[numbers].tolist()
    return draw(st.sampled_from([numbers, names, chosen, np.array(chosen), "from_dtype", None]))


def bounds(y):
    """Bounds that all targets keep, of which some are at one."""
    values = np.asarray(y, dtype=float)
    low, high = float(values.min()), float(values.max())
    return st.sampled_from(
        [(low, None), (-np.inf, high), (low, max(high, low + 1 + abs(low))), None]
    )


@st.composite
def text_features(draw, table):
    """Draw which columns of strings are texts, and by what vectoriser."""
    table = table.to_pandas() if isinstance(table, pl.DataFrame) else table
    names = [
        name for name, dtype in getattr(table, "dtypes", {}).items() if is_string_dtype(dtype)
    ]
    chosen = [name for name in names if draw(st.booleans())]
    given = {name: CountVectorizer(analyzer="char") for name in chosen}
    return draw(st.sampled_from([chosen, given, None]))


@st.composite
def class_weights(draw, y):
    """Draw weights of the classes: one may count nothing."""
    if draw(st.booleans()):
        return "balanced"
    outputs = np.asarray(y, dtype=object).reshape(len(y), -1).T
    weights = st.sampled_from([1.0, 0.5, 3, 0])
    each = [{label: draw(weights) for label in dict.fromkeys(output)} for output in outputs]
    return each[0] if np.ndim(y) == 1 else each
