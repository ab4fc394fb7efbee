"""Trends and their fits: names of ``_trend`` for tests."""

from nona_sklearn._trend import kernel_trend
from nona_sklearn._trend.additive_trend import (
    MAX_BINS,
    MAX_CODES,
    MAX_FITTED_ROWS,
    PENALTIES,
    AdditiveTrend,
)
from nona_sklearn._trend.kernel_trend import (
    CONSTANT,
    Kernel,
    KernelTrend,
    LeftOut,
    choose_kernel,
    weigh_features,
)
from nona_sklearn._trend.model_trend import (
    LEAST_PROBABILITY,
    Classes,
    ModelTrend,
    Numbers,
    check_model,
)
from nona_sklearn._trend.trend import INVERSE_PENALTY, N_FOLDS, _scale
