"""Deep nearest neighbours for scikit-learn.

Glossary
--------
query       a row that we want a prediction for
neighbour   a labelled row that may take part in the prediction
bank        all neighbours: embeddings and targets, stored at fit
id          the number of a row of the bank, which no other has or will have
name        what the index of a DataFrame calls a row; without one, its id
pool        the neighbours of one training step
embedding   where a row lies in the space in which neighbours are compared
similarity  how near a neighbour is to a query; larger is nearer
step        SoftStep's learned mask on the similarities: a differentiable k
weighting   how a similarity becomes a weight
weight      the share of a neighbour's target in a prediction; a row of weights sums to 1
NONA        Nearness of Neighbors Attention: weights are a softmax of similarities
excluded    pairs of query and neighbour that must not meet: a row and itself in training
"""

from ._data.rows import Rows
from ._data.table_encoder import TableEncoder
from ._estimators.nona import NONAClassifier, NONARegressor
from ._estimators.parameters import ASSoftmax
from ._estimators.softstep import SoftStepKNeighborsClassifier, SoftStepKNeighborsRegressor
from ._inference.distribution import Calibration
from ._inspection.compare_heads import compare_heads
from ._inspection.displays.embedding import EmbeddingDisplay
from ._inspection.displays.history import HistoryDisplay
from ._inspection.displays.interval import IntervalDisplay
from ._inspection.displays.neighbors import NeighborsDisplay
from ._inspection.displays.step import StepDisplay
from ._inspection.displays.surface import SurfaceDisplay
from ._inspection.displays.weighting import WeightingDisplay
from ._inspection.search import param_distributions, param_grid
from ._inspection.unwrap import unwrap
from ._network.extractor import FeatureExtractor
from ._persistence.file import load, save
from ._persistence.onnx import export_onnx
from ._scaling.approximate import ApproximateNeighborsRegressor
from ._scaling.sharded import ShardedNeighbors, save_shards
from ._version import __version__ as __version__
from .attention import ClassHead, NONAHead, neighbor_attention, neighbor_weights
from .embedding import MLPEmbedding, PeriodicEmbedding
from .softstep import SoftStep

__all__ = [
    "ASSoftmax",
    "ApproximateNeighborsRegressor",
    "Calibration",
    "EmbeddingDisplay",
    "FeatureExtractor",
    "HistoryDisplay",
    "IntervalDisplay",
    "MLPEmbedding",
    "ClassHead",
    "NONAClassifier",
    "NONAHead",
    "NONARegressor",
    "NeighborsDisplay",
    "PeriodicEmbedding",
    "Rows",
    "ShardedNeighbors",
    "SoftStep",
    "SoftStepKNeighborsClassifier",
    "SoftStepKNeighborsRegressor",
    "StepDisplay",
    "SurfaceDisplay",
    "TableEncoder",
    "WeightingDisplay",
    "compare_heads",
    "export_onnx",
    "load",
    "neighbor_attention",
    "neighbor_weights",
    "param_distributions",
    "param_grid",
    "save",
    "save_shards",
    "unwrap",
]
