"""Deep nearest neighbours for scikit-learn.

A network embeds rows so that neighbours have similar targets. A prediction is a weighted mean of
the targets of real training rows, each adjusted for how its row differs from the query, so that
the rows behind every prediction can be listed. Terms are explained in ``docs/glossary.md``.
"""

from ._data.sample import Rows
from ._data.table_encoder import TableEncoder
from ._estimators.nona import NONAClassifier, NONARegressor
from ._estimators.parameters import ASSoftmax, TrainingOptions
from ._estimators.softstep import SoftStepKNeighborsClassifier, SoftStepKNeighborsRegressor
from ._estimators.survival import NONASurvivalAnalysis
from ._inference.distribution import Calibration
from ._inspection.counterfactuals import counterfactuals
from ._inspection.displays.interval import CoverageDisplay, IntervalDisplay
from ._inspection.displays.learned import EffectDisplay, EmbeddingDisplay, StepDisplay
from ._inspection.displays.neighbors import NeighborsDisplay
from ._inspection.displays.survival import SurvivalDisplay
from ._inspection.explorer import explore
from ._inspection.report import NeighborsReport
from ._inspection.survival_report import SurvivalReport
from ._network.extractor import FeatureExtractor
from ._persistence.file import load, save
from ._persistence.onnx import export_onnx, onnx_bank, onnx_inputs
from ._scaling.building import fit_shards
from ._scaling.sharded import ShardedNeighbors, save_shards
from ._version import __version__ as __version__
from .attention import ClassHead, NONAHead, neighbor_attention, neighbor_weights
from .embedding import MLPEmbedding, PeriodicEmbedding
from .pipelines import unwrap
from .softstep import SoftStep

__all__ = [
    "ASSoftmax",
    "Calibration",
    "CoverageDisplay",
    "EffectDisplay",
    "EmbeddingDisplay",
    "FeatureExtractor",
    "IntervalDisplay",
    "MLPEmbedding",
    "ClassHead",
    "NONAClassifier",
    "NONAHead",
    "NONARegressor",
    "NONASurvivalAnalysis",
    "NeighborsDisplay",
    "NeighborsReport",
    "PeriodicEmbedding",
    "Rows",
    "ShardedNeighbors",
    "SoftStep",
    "SoftStepKNeighborsClassifier",
    "SoftStepKNeighborsRegressor",
    "StepDisplay",
    "SurvivalDisplay",
    "SurvivalReport",
    "TableEncoder",
    "TrainingOptions",
    "counterfactuals",
    "explore",
    "export_onnx",
    "fit_shards",
    "load",
    "neighbor_attention",
    "neighbor_weights",
    "onnx_bank",
    "onnx_inputs",
    "save",
    "save_shards",
    "unwrap",
]
