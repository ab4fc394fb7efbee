"""The steps of `fit`, and queries of a fitted estimator: names of ``_estimators`` for tests."""

from nona_sklearn._estimators import architectures, base, fitting, stability
from nona_sklearn._estimators.architectures import LEAST_TREND_ROWS, ROWS_PER_SPARSE
from nona_sklearn._estimators.classification import NeighborClassifier
from nona_sklearn._estimators.editing import edit
from nona_sklearn._estimators.explanations import class_names, explain, integrated_gradients
from nona_sklearn._estimators.fit_warnings import _identifiers, _is_sorted, _lag_of, _of_columns
from nona_sklearn._estimators.fitting import trained
from nona_sklearn._estimators.parameters import (
    N_NEIGHBORS,
    PARAMETER_GROUPS,
    START_N_NEIGHBORS,
    START_N_NEIGHBORS_OF_CLASSES,
)
from nona_sklearn._estimators.queries import evaluate
from nona_sklearn._estimators.regression import NeighborRegressor
from nona_sklearn._estimators.stability import _refits
from nona_sklearn._estimators.upgrades import upgrade_nona, upgrade_softstep
