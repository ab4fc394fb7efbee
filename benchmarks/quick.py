"""What makes a run quick."""

from .internals import NeighborEstimator

N_EPOCHS = 2


def shorten(model):
    """Cut the training of an estimator of ours, or of those within a pipeline, in place."""
    few = {"n_estimators": 1, "max_iter": N_EPOCHS}
    for part in [model, *model.get_params().values()]:
        if isinstance(part, NeighborEstimator):
            part.set_params(**{name: few[name] for name in few.keys() & part.get_params()})
    return model
