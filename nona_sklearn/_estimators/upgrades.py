"""Upgrades of parameters in files of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._data.table_encoder import TableEncoder
from .._network.extractor import FeatureExtractor
from ..softstep import SoftStep
from ..weighting import Softmax
from .parameters import OF_SOFTSTEP, ASSoftmax, TrainingOptions

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
#: Parameters that moved to the table encoder.
OF_ENCODER = "categorical_features", "text_features", "max_categories"
#: Default values of parameters that moved to the options of training.
OF_NONA: dict[str, Any] = TrainingOptions().get_params()
OF_SOFTSTEP_KNN = OF_NONA | OF_SOFTSTEP | {"neighbor_pool": "dataset"}


def upgrade_nona(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the upgraded parameters of a NONA estimator."""
    options = {new: parameters[old] for old, new in OF_EXTRACTOR.items() if old in parameters}
    new = _upgrade({k: v for k, v in parameters.items() if k not in OF_EXTRACTOR}, OF_NONA)
    new.setdefault("n_neighbors", None)  # absent in 0.2.0
    new.setdefault("trend", None)  # absent in 0.2.0
    if options and new.get("feature_extractor") is not None:
        new["feature_extractor"] = FeatureExtractor(new["feature_extractor"], **options)
    if not parameters.get("learn_temperature", True) and new.get("weighting") == "softmax":
        new["weighting"] = Softmax(learn_temperature=False)
    params, step = new.pop("softstep_params", "global"), new.get("softstep")
    if params != "global" and isinstance(step, str):
        step = {"step": step, "params": params}
    if isinstance(step, dict):
        new["softstep"] = SoftStep(**step)
    return new


def upgrade_softstep(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the upgraded parameters of a SoftStep k-NN, whose `adjust` becomes `trend`."""
    new = _upgrade(parameters, OF_SOFTSTEP_KNN)
    on, params = new.pop("softstep_on", "rank"), new.pop("softstep_params", "global")
    if (on, params) != ("rank", "global"):
        new["softstep"] = SoftStep(new["softstep"], params, on)
    adjusts = new.pop("adjust", False)
    return {"trend": "additive" if adjusts else None} | new


def _upgrade(parameters: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return upgraded parameters that all estimators share."""
    new = {name: value for name, value in parameters.items() if name not in GONE}
    margin = new.pop("margin", None)
    if margin is not None and new["loss"] == "as_softmax":
        new["loss"] = ASSoftmax(margin)
    if not new.pop("early_stopping", True):
        new["validation_fraction"] = None
    of_encoder = {name: new.pop(name) for name in OF_ENCODER if name in new}
    encoder = TableEncoder(**of_encoder)
    if repr(encoder) != repr(TableEncoder()):  # a parameter may be an array
        new["table_encoder"] = encoder
    of_training = {name: new.pop(name) for name in defaults if name in new}
    if changed := {k: v for k, v in of_training.items() if v != defaults[k]}:
        new["training"] = TrainingOptions(**changed)
    return new
