"""The loop of epochs, pools, pace and refinement: names of ``_training`` for tests."""

from nona_sklearn._training import loop, net, progress, refinement
from nona_sklearn._training.loop import (
    LEAST_GAIN,
    RETRY_RATE,
    CountedParallel,
    Pace,
    TrainingConfig,
    count_networks,
    train_in_threads,
    train_network,
)
from nona_sklearn._training.net import (
    NEIGHBOR_POOLS,
    STEPS,
    STEPS_OF_CLASSES,
    DatasetPool,
    NearBatches,
    NearPool,
    NONANet,
    QuietAdamW,
    RowBatches,
    count_parts,
    resolve_batch_size,
)
from nona_sklearn._training.progress import Budget, Progress
from nona_sklearn._training.refinement import (
    TOLERANCE,
    TOLERANCE_OF_CLASSES,
    fit_n_neighbors,
    how_many,
    loss_relative_to_mean,
    refine,
)
