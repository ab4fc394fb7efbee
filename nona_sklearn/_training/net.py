"""The skorch nets: each training row is predicted from its pool, never from itself."""

from __future__ import annotations

import skorch
import torch
from skorch.callbacks import Callback, EarlyStopping
from skorch.hf import AccelerateMixin
from torch import Tensor

from .._inference.evaluation import Evaluation
from .._inference.neighbors import Exclusion, Neighbors
from .._network.network import NeighborNetwork
from .._utils.chunks import spans
from .batches import count_parts
from .callbacks import Deadline

BLOCK_ENTRIES = 2**19  # query-neighbour pairs that validation weighs at a time: 2 MB


class NONANet(skorch.NeuralNet):
    """A skorch net that predicts each training row from its pool, never from itself.

    Parameters
    ----------
    module : NeighborNetwork
        The network to train, in place.
    pool : DatasetPool, BatchPool or MemoryPool
        Chooses and embeds a step's neighbours.
    valid : Sample, optional
        The validation rows.
    weights, weights_valid : sequence of Tensor of shape (n,) and (n_valid,), default=()
        What else the loss takes of training and validation rows: how much they count, where
        they differ.
    micro_batch_size : int, optional
        Most queries to take through the network at a time: gradients of a batch add up. One
        more where that spares a single row, which might have no neighbour.
    accumulation : AdaptiveAccumulation, optional
        Updated by the number of rows of a step that the loss ignored (its `n_ignored`).
    **kwargs
        Parameters of :class:`skorch.NeuralNet`.
    """

    def __init__(
        self,
        module,
        pool,
        valid=None,
        weights=(),
        weights_valid=(),
        micro_batch_size=None,
        accumulation=None,
        **kwargs,
    ):
        super().__init__(module, **kwargs)
        self.pool = pool
        self.valid = valid
        self.weights = weights
        self.weights_valid = weights_valid
        self.micro_batch_size = micro_batch_size
        self.accumulation = accumulation

    def fit_loop(self, X, y=None, **kwargs):
        """Note why training ends, and an interruption, which skorch takes for the wish to end."""
        self.stopped_, self.interrupted_ = "max_iter", None
        self.learnable_ = list(super().get_all_learnable_params())
        try:
            return super().fit_loop(X, y, **kwargs)
        except KeyboardInterrupt as interrupt:  # a callback's way to end the loop, too
            self.stopped_ = next(filter(None, (why_stopped(c) for _, c in self.callbacks_)), None)
            if self.stopped_ is None:
                self.interrupted_ = interrupt
            raise

    def get_all_learnable_params(self):
        """List the parameters, which do not change in training: each step needs them."""
        return getattr(self, "learnable_", None) or super().get_all_learnable_params()

    def infer(self, rows, **fit_params):
        return self.module_(rows, self.pool)

    def train_step_single(self, batch, **fit_params):
        """Add up the gradients of a batch's parts, each weighing as many rows as it has."""
        rows, y = batch
        n_parts = count_parts(len(rows), self.micro_batch_size)
        parts = []
        for part, truth in zip(rows.tensor_split(n_parts), y.tensor_split(n_parts), strict=True):
            y_pred = self.infer(part)
            loss = self.get_loss(y_pred, truth, part, training=True) * (len(part) / len(rows))
            if not loss.requires_grad:
                raise ValueError(
                    "nothing to learn: the loss does not depend on the network. With adjust=False "
                    "and no step, the weighting must have a gradient"
                )
            self.backward(loss)
            parts.append((loss.detach(), y_pred.detach()))
        losses, predictions = zip(*parts, strict=True)
        y_pred = torch.cat(predictions)
        if self.accumulation is not None:
            self.accumulation.update(len(rows), self.count_ignored(y_pred, y))
        return {"loss": sum(losses), "y_pred": y_pred}

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Compare predictions of rows, whose numbers are `X`, with their targets."""
        weights = self.weights if training else self.weights_valid
        self.loss.train(training)
        return self.criterion_(y_pred, y_true, *(weight[X] for weight in weights))

    def backward(self, loss):
        """Add a loss's gradients to those of the parameters."""
        loss.backward()

    def count_ignored(self, y_pred, y_true):
        """Count the rows of a step that the loss ignores."""
        return self.loss.n_ignored(y_pred, y_true).item()

    def validation_step(self, batch, **fit_params):
        """Score the validation rows against the pool's."""
        rows, y = batch
        network = self.network
        neighbors = self.pool.neighbors(network)
        query = network.embed(self.valid.X)
        exclusion = self.pool.excluded_in_validation(self.valid, slice(len(neighbors)))
        y_pred = predict_roughly(network, neighbors, query, exclusion)
        return {"loss": self.get_loss(y_pred, y, rows, training=False), "y_pred": y_pred}

    def agree(self, stop):
        """Whether to stop: what other processes that train the same network do, too."""
        return stop

    @property
    def network(self):
        """The network itself, without what may be wrapped around it."""
        return self.module_

    @property
    def loss(self):
        """The loss's module."""
        return self.criterion_


class AcceleratedNet(AccelerateMixin, NONANet):
    """The same on the devices of an :class:`accelerate.Accelerator`.

    Each process takes its share of every batch, and draws the same further neighbours.
    """

    def initialize_criterion(self):
        """Take the module's method: skorch would wrap a module without weights, and fail."""
        self.criterion_ = self.criterion().__call__
        return self

    def train_step_single(self, batch, **fit_params):
        step = NONANet.train_step_single(self, batch, **fit_params)
        # The same on all processes, so that all of them stop at the same epoch.
        return step | {"loss": self.accelerator.reduce(step["loss"], reduction="mean")}

    def backward(self, loss):
        self.accelerator.backward(loss)

    def count_ignored(self, y_pred, y_true):
        """Count them as if each process had as many: all of them take the same next step."""
        n_ignored = self.loss.n_ignored(y_pred, y_true).float()
        return self.accelerator.reduce(n_ignored, reduction="mean").item()

    def agree(self, stop):
        """Whether any of the processes would: one that went on alone would wait for ever."""
        votes = torch.tensor(float(stop), device=self.accelerator.device)
        return self.accelerator.reduce(votes, reduction="sum").item() > 0

    @property
    def network(self):
        return self.accelerator.unwrap_model(self.module_)

    @property
    def loss(self):
        return self.criterion_.__self__


def why_stopped(callback: Callback) -> str | None:
    """The reason why a callback has ended training; None if it has not."""
    if isinstance(callback, EarlyStopping) and callback.misses_ == callback.patience:
        return "no change"
    if isinstance(callback, Deadline) and callback.passed_:
        return "max_time"
    return None


@torch.no_grad()
def predict_roughly(
    network: NeighborNetwork, neighbors: Neighbors, query: Tensor, exclusion: Exclusion | None
) -> Tensor:
    """Predict embedded queries, at once and to training's precision: fast."""
    network.head.train()
    found = []
    for rows in spans(len(query), max(1, BLOCK_ENTRIES // len(neighbors))):
        excluded = None if exclusion is None else exclusion[rows]
        found.append(Evaluation(network.head, neighbors, query[rows], excluded).attend())
    return torch.cat(found)
