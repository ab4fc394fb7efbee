"""Upgrades of parameters in files of earlier versions."""

from __future__ import annotations

from typing import Any

from .._network.extractor import FeatureExtractor
from ..weighting import Softmax
from .parameters import ASSoftmax

#: New names, within FeatureExtractor, of parameters that version 0.2.0 had beside it.
OF_EXTRACTOR = {
    "collate_fn": "collate_fn",
    "extractor_learning_rate": "learning_rate",
    "micro_batch_size": "micro_batch_size",
    "precision": "precision",
    "accelerator": "accelerator",
}
#: Parameters of version 0.2.0 that are ignored. Files store networks with all their layers.
GONE = (
    *("activation", "average", "batch_norm", "learn_temperature", "max_accumulation"),
    "skip_connection",
)


def upgrade_nona(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the upgraded parameters of a NONA estimator."""
    options = {new: parameters[old] for old, new in OF_EXTRACTOR.items() if old in parameters}
    new = _upgrade({k: v for k, v in parameters.items() if k not in OF_EXTRACTOR})
    new.setdefault("n_neighbors", None)  # absent in 0.2.0
    new.setdefault("trend", None)  # absent in 0.2.0
    if options and new.get("feature_extractor") is not None:
        new["feature_extractor"] = FeatureExtractor(new["feature_extractor"], **options)
    if not parameters.get("learn_temperature", True) and new.get("weighting") == "softmax":
        new["weighting"] = Softmax(learn_temperature=False)
    params = new.pop("softstep_params", "global")
    if params != "global" and new.get("softstep") is not None:
        new["softstep"] = {"step": new["softstep"], "params": params}
    return new


def upgrade_softstep(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the upgraded parameters of a SoftStep k-NN, whose `adjust` becomes `trend`."""
    new = _upgrade(parameters)
    adjusts = new.pop("adjust", False)
    return {"trend": "additive" if adjusts else None} | new


def _upgrade(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return upgraded parameters that all estimators share."""
    new = {name: value for name, value in parameters.items() if name not in GONE}
    margin = new.pop("margin", None)
    if margin is not None and new["loss"] == "as_softmax":
        new["loss"] = ASSoftmax(margin)
    return new
