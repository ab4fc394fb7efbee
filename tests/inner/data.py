"""Checked rows and columns, encoders, targets and splits: names of ``_data`` for tests."""

from contextlib import contextmanager

import pytest

from nona_sklearn._data import columns, source
from nona_sklearn._data.column_spec import (
    CALENDAR,
    N_FOLDS,
    LevelEncoder,
    TextEncoder,
    columns_of_targets,
    cross_fit,
)
from nona_sklearn._data.columns import Column
from nona_sklearn._data.durations import Durations
from nona_sklearn._data.row_values import (
    check_groups,
    check_sample_weight,
    normalize_mean,
    weighted_quantiles,
)
from nona_sklearn._data.rule_columns import RuleColumns, StoredRule
from nona_sklearn._data.sample import Embedded, Sample, TableRows
from nona_sklearn._data.source import (
    ALPHAS,
    DEVIATION,
    MOST_COMPONENTS,
    ROWS_PER_CHOICE,
    ROWS_PER_COMPONENT,
    LinearScores,
    SmoothClipScaler,
    SparseEncoder,
    TableSource,
)
from nona_sklearn._data.splits import N_BLOCKS, Split, split_as_given, split_by_time
from nona_sklearn._data.table_encoder import TableEncoder, fit_encoder
from nona_sklearn._data.table_encoding import TableEncoding
from nona_sklearn._data.tables import Names, check_table, labels_of, names_of_new
from nona_sklearn._data.targets import ClassTargets, RegressionTargets, find_factors, weigh_classes
from nona_sklearn._data.times import TimeKind, read_times
from nona_sklearn._data.training_data import TrainingData


@contextmanager
def read_by_columns():
    """Read frames of one row by columns inside the block, as frames of many rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "row_of_frame", lambda *_: None)
        yield


@contextmanager
def read_by_cells():
    """Raise an error inside the block where the columns of a frame are read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(columns, "_read_series")
        yield
