"""Neighbours, the bank, indexes and what an `Evaluation` answers, for tests of ``_inference``."""

from contextlib import contextmanager

import pytest

from nona_sklearn._inference import (
    calibration,
    evaluation,
    held_out,
    index,
    influence,
    neighbors,
    network_trend,
    relations,
)
from nona_sklearn._inference.bank import NeighborBank
from nona_sklearn._inference.calibration import (
    NOISE_SHARES,
    _are_about_lowest,
    _miscoverage,
    averaged_out,
    calibrate_on_bank,
    calibrate_on_held_out,
    fit_calibration,
    ranks_of,
    residuals_apart,
    shape_of,
    shared_part,
)
from nona_sklearn._inference.distribution import (
    GRID,
    NORMAL,
    Calibration,
    Discrete,
    Distribution,
    GridValues,
    Noise,
    Noisy,
    Widened,
    draw_levels,
)
from nona_sklearn._inference.evaluation import Evaluation
from nona_sklearn._inference.held_out import (
    SHARE,
    ValidationRows,
    _number_by_squared_error,
    _share_by_log_loss,
    converged_networks,
    credibility_of,
    fit_credibility,
    outputs_by_chance,
    predict_held_out,
    with_numbers,
)
from nona_sklearn._inference.index import (
    ALGORITHMS,
    BruteIndex,
    GraphIndex,
    TransformerIndex,
    TreeIndex,
    check_algorithm,
    exact_keys,
    make_index,
)
from nona_sklearn._inference.neighbors import (
    LabelExclusion,
    MaskExclusion,
    Neighbors,
    RuleExclusion,
    TimeExclusion,
    UnknownLevels,
    as_mask,
    count_admitted,
)
from nona_sklearn._inference.network_trend import NetworkTrend
from nona_sklearn._inference.relations import WINDOW, Relation, related_factor
from nona_sklearn._inference.shared_rows import GrowingTensor, SharedRows


@contextmanager
def searched(name):
    """Yield a name without "by some columns", by which l1 compares these first of any rows."""
    few = {"LEAST_SAVED": 0, "SHARE_OF_COLUMNS": 0.3, "N_SUMS": 1, "N_CANDIDATES": 2}
    with pytest.MonkeyPatch.context() as patch:
        for constant, value in few.items() if name.endswith("by some columns") else ():
            patch.setattr(index, constant, value)
        yield name.split(",")[0]
