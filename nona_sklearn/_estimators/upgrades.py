"""Parameters of files of earlier versions, as parameters of this one."""

from __future__ import annotations

from typing import Any

from .._network.extractor import FeatureExtractor
from ..weighting import Softmax
from .parameters import ASSoftmax

#: Of 0.2.0, which had parameters of a feature extractor beside it: their names within it.
OF_EXTRACTOR = {
    "collate_fn": "collate_fn",
    "extractor_learning_rate": "learning_rate",
    "micro_batch_size": "micro_batch_size",
    "precision": "precision",
    "accelerator": "accelerator",
}
#: Of 0.2.0, whose networks are in a file with all their layers.
GONE = (
    *("activation", "average", "batch_norm", "learn_temperature", "max_accumulation"),
    "skip_connection",
)


def upgrade_nona(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a NONA estimator."""
    options = {new: parameters[old] for old, new in OF_EXTRACTOR.items() if old in parameters}
    new = _upgrade({k: v for k, v in parameters.items() if k not in OF_EXTRACTOR})
    new.setdefault("n_neighbors", None)  # of 0.2.0, which had none
    new.setdefault("trend", None)  # of the same
    if options and new.get("feature_extractor") is not None:
        new["feature_extractor"] = FeatureExtractor(new["feature_extractor"], **options)
    if not parameters.get("learn_temperature", True) and new.get("weighting") == "softmax":
        new["weighting"] = Softmax(learn_temperature=False)
    params = new.pop("softstep_params", "global")
    if params != "global" and new.get("softstep") is not None:
        new["softstep"] = {"step": new["softstep"], "params": params}
    return new


def upgrade_softstep(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a SoftStep k-NN estimator, whose trend was chosen by `adjust`.

    Those of 0.2.0 had none, nor had classifiers.
    """
    new = _upgrade(parameters)
    adjusts = new.pop("adjust", False)
    return {"trend": "additive" if adjusts else None} | new


def _upgrade(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of any estimator."""
    new = {name: value for name, value in parameters.items() if name not in GONE}
    margin = new.pop("margin", None)
    if margin is not None and new["loss"] == "as_softmax":
        new["loss"] = ASSoftmax(margin)
    return new
