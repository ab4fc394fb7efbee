"""Threads, random state, files and registries: names of ``_utils`` for tests."""

from nona_sklearn._utils import storable, tables, threads
from nona_sklearn._utils.docs import SITE, page_template
from nona_sklearn._utils.random import local_seed
from nona_sklearn._utils.storable import UPGRADES, storable_estimator, storable_parameters
from nona_sklearn._utils.tables import target_names_of, warn_of_other_order
from nona_sklearn._utils.threads import (
    EDITING,
    WORKERS,
    FairSemaphore,
    cached_property,
    one_blas_thread,
    replaced_when_done,
    snapshot,
)
from nona_sklearn._utils.validation import MAX_WIDENED
