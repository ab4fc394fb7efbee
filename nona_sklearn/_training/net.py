"""Training steps: the skorch net, batches, pools of neighbours, and the optimizer."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import skorch
import torch
from skorch.hf import AccelerateMixin
from torch import Generator, Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from torch.optim.optimizer import Optimizer
from torch.utils.data import TensorDataset

from .._inference.evaluation import Evaluation
from .._inference.neighbors import (
    Exclusion,
    LabelExclusion,
    Neighbors,
    RuleExclusion,
    TimeExclusion,
)
from .._utils.precision import stored
from .._utils.validation import in_blocks, spans

if TYPE_CHECKING:
    from .._data.rule_columns import StoredRule
    from .._data.sample import Rows, Sample
    from .._network.network import NeighborNetwork
    from .._utils.threads import FairSemaphore

LARGE = 2**16  # a table of more rows trains one network, in larger steps
# Steps of an epoch and largest batches with batch_size='auto'. A feature extractor, whose rows are
# costly, has more and smaller steps. Large batches make a network memorise classes sooner.
STEPS, STEPS_OF_CLASSES, EXTRACTOR_STEPS = 4, 8, 16
MIN_BATCH, MAX_BATCH, MAX_LARGE_BATCH, MAX_EXTRACTOR_BATCH = 32, 512, 1024, 256
CELL = 128  # least number of near rows that are in a batch together
MAX_GRADIENT_NORM = 1.0
AVERAGED_PART = 9  # the average extends over about 1/9 of the steps
BLOCK_ENTRIES = 2**19  # query-neighbour pairs that validation evaluates at a time, 2 MB


@dataclass(eq=False)
class DatasetPool:
    """Take the batch and further random rows as neighbours, embedded anew with gradient."""

    X: Tensor | Rows  # the training rows, (n, n_features)
    values: Tensor  # values that predictions average, (n,) or (n, n_outputs)
    size: int  # number of neighbours in a step; all rows, if there are fewer
    generator: Generator
    groups: Tensor | None = None  # (n,), codes; a group has no neighbours in itself; None: rows
    log_prior: Tensor | None = None  # (n,), logarithms of prior weights; None: equal weights
    times: Tensor | None = None  # (n,)
    window: float = 0.0  # neighbours in training differ in time by more than this
    rule: StoredRule | None = None  # of rows that may be neighbours
    compared: Tensor | None = None  # (n, n_columns), of the columns that the rule compares

    def __post_init__(self) -> None:
        n, device = len(self.X), self.values.device
        self.labels = torch.arange(n, device=device) if self.groups is None else self.groups
        self.is_query = torch.zeros(n, dtype=torch.bool, device=device)
        self.n_drawn = n  # number of drawn rows; n makes the first draw shuffle

    def evaluate(self, network: NeighborNetwork, queries: Tensor) -> Evaluation:
        """Return the evaluation of the network at queries (q,), given by index."""
        rows = torch.cat([queries, self.draw(queries)])
        query, embeddings = self.embed(network, queries, rows)
        neighbors = self.as_neighbors(stored(embeddings), rows)
        exclusion = self.excluded_in_training(queries, rows)
        return Evaluation(network.head, neighbors, stored(query), exclusion)

    def draw(self, queries: Tensor) -> Tensor:
        """Return drawn rows outside of `queries`, so that both have `size` rows together.

        Draws pass through the shuffled rows, and shuffle anew at the end, so that the cost of a
        step is independent of the number of rows.
        """
        if self.n_drawn + self.size > len(self.X):
            order = torch.randperm(len(self.X), generator=self.generator)
            self.order, self.n_drawn = order.to(self.values.device), 0
        drawn = self.order[self.n_drawn : self.n_drawn + self.size]
        self.n_drawn += self.size
        self.is_query[queries] = True
        beside = drawn[~self.is_query[drawn]]
        self.is_query[queries] = False
        return beside[: max(self.size - len(queries), 0)]

    def embed(
        self, network: NeighborNetwork, queries: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings of the queries, (q, d), and of all rows, (n, d), queries first."""
        embeddings = network.embedding(self.X[rows])
        return embeddings[: len(queries)], embeddings

    def as_neighbors(self, embeddings: Tensor, rows: Tensor | slice) -> Neighbors:
        """Return embedded rows as neighbours, with values and prior weights."""
        prior = None if self.log_prior is None else self.log_prior[rows]
        return Neighbors(embeddings, self.values[rows], prior)

    def neighbors(self, network: NeighborNetwork) -> Neighbors:
        """Return the neighbours of validation rows, the first `size` of the shuffled rows.

        With all rows as neighbours, validation would soon cost more than training.
        """
        return self.as_neighbors(network.embed(self.X[: self.size]), slice(self.size))

    def excluded_in_training(self, queries: Tensor, rows: Tensor | slice) -> Exclusion:
        """Return the exclusion of a query's row or group, and of rows that are near in time."""
        further: Any = LabelExclusion(self.labels[queries], self.labels[rows])
        if self.times is not None:
            times, window = self.times[queries], self.window
            further = TimeExclusion(times - window, self.times[rows], times + window, further)
        if self.rule is None or self.compared is None:
            return further
        return RuleExclusion(self.rule, self.compared[queries], self.compared[rows], further)

    def excluded_in_validation(self, valid: Sample, rows: slice) -> Exclusion | None:
        """Return the exclusion of groups and later rows for validation rows, or None."""
        further = None
        if valid.times is not None and self.times is not None:
            labels = None
            if valid.groups is not None and self.groups is not None:
                labels = LabelExclusion(valid.groups, self.groups[rows])
            further = TimeExclusion(valid.times, self.times[rows], labels=labels)
        if self.rule is None or self.compared is None or valid.compared is None:
            return further  # without times, validation takes whole groups
        return RuleExclusion(self.rule, valid.compared, self.compared[rows], further)


class BatchPool(DatasetPool):
    """Take the batch as neighbours, as in the NONA paper."""

    def draw(self, queries: Tensor) -> Tensor:
        """Return no rows."""
        return queries[:0]


class NearPool(BatchPool):
    """Take the batch as neighbours, of cells of near rows (:class:`NearBatches`)."""

    def cells(self, network: NeighborNetwork) -> list[Tensor]:
        """Return the rows in cells of near embeddings, of CELL to twice as many rows each.

        The cells are the leaves of a random projection tree (Dasgupta and Freund, "Random
        Projection Trees and Low Dimensional Manifolds", 2008), in random order.
        """
        z = network.head.metric_part(network.embed(self.X))
        n, generator = len(z), self.generator

        def project(rows: Tensor, direction: Tensor) -> Tensor:
            return in_blocks(lambda some: z[some] @ direction, rows, 2**16)

        order, bounds = torch.randperm(n, generator=generator).to(z.device), [0, n]
        while bounds[1] >= 2 * CELL:  # halve every cell at the median along a direction
            for start, stop in pairwise(bounds):
                rows = order[start:stop]
                along = project(rows, torch.randn(z.shape[1], generator=generator).to(z))
                order[start:stop] = rows[along.argsort(stable=True)]
            middles = [(start + stop) // 2 for start, stop in pairwise(bounds)]
            bounds = sorted([*bounds, *middles])
        cells = order.tensor_split(bounds[1:-1])  # views: small tensors would scatter the heap
        return [cells[i] for i in torch.randperm(len(cells), generator=generator)]


class MemoryPool(DatasetPool):
    """Take stored embeddings of random rows as neighbours, without gradient.

    A step embeds and stores the queries only, which suits expensive embeddings. Validation
    refreshes all stored embeddings.
    """

    memory: Tensor | None = None  # (n, d)

    def embed(
        self, network: NeighborNetwork, queries: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        if self.memory is None:
            self.memory = network.embed(self.X)
        embeddings = network.embedding(self.X[queries])
        remembered = self.memory[rows]
        self.memory[queries] = embeddings.detach().to(self.memory.dtype)
        return embeddings, remembered

    def neighbors(self, network: NeighborNetwork) -> Neighbors:
        self.memory = network.embed(self.X)
        return self.as_neighbors(self.memory[: self.size], slice(self.size))


#: Pools by the names that the parameter `neighbor_pool` accepts.
NEIGHBOR_POOLS: dict[str, type[DatasetPool]] = {
    "dataset": DatasetPool,
    "batch": BatchPool,
    "near": NearPool,
    "memory": MemoryPool,
}


class NONANet(skorch.NeuralNet):
    """Train a module in place with skorch, predicting a training row from its pool without itself.

    `weights` are the training rows' weights (n,) in the loss. A batch is split into parts of about
    `micro_batch_size` queries, whose gradients add up. `average` follows the module's weights.
    Training fails at its next step if `turns` have ended.
    """

    def __init__(
        self,
        module: NeighborNetwork,
        *,
        pool: DatasetPool,
        valid: Sample | None = None,
        weights: Sequence[Tensor] = (),
        micro_batch_size: int | None = None,
        average: WeightAverage | None = None,
        turns: FairSemaphore | None = None,
        **kwargs: Any,
    ):
        super().__init__(module, **kwargs)
        self.pool = pool
        self.valid = valid
        self.weights = weights
        self.micro_batch_size = micro_batch_size
        self.average = average
        self.turns = turns
        self.learned = list(module.parameters())  # listing parameters takes as long as a step

    def train_step(self, batch, **fit_params):
        """Return the loss and predictions of an optimizer step."""
        if self.turns is not None and self.turns.ended:
            raise InterruptedError("the training of another network has failed")
        step = super().train_step(batch, **fit_params)
        if self.average is not None:
            self.average.update()
        return step

    def train_step_single(self, batch, **fit_params):
        """Return the loss and predictions of a batch, and add up the gradients of its parts."""
        rows, y = batch
        n_parts = count_parts(len(rows), self.micro_batch_size)
        losses, predictions = [], []
        for part, truth in zip(rows.tensor_split(n_parts), y.tensor_split(n_parts), strict=True):
            y_pred = self.infer(part)
            loss = self.get_loss(y_pred, truth, part, training=True) * (len(part) / len(rows))
            if not loss.requires_grad:
                raise ValueError(
                    "nothing to learn: the loss does not depend on the network. With adjust=False "
                    "and no step, the weighting must have a gradient"
                )
            self.backward(loss)
            losses.append(loss.detach())
            predictions.append(y_pred.detach())
        clip_grad_norm_(self.learned, MAX_GRADIENT_NORM)
        return {"loss": sum(losses), "y_pred": torch.cat(predictions)}

    def infer(self, rows, **fit_params):
        """Return predictions of training rows, given by index, from their pool."""
        return self.module_(rows, self.pool)

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Return the loss of predictions for the rows with indices `X`."""
        weights = self.weights if training else self.valid.weights
        self.loss.train(training)
        return self.criterion_(y_pred, y_true, *(weight[X] for weight in weights))

    @torch.no_grad()
    def validation_step(self, batch, **fit_params):
        """Return the loss of validation rows, predicted from the pool in float32."""
        rows, y = batch
        network = self.module
        neighbors = self.pool.neighbors(network)
        query = network.embed(self.valid.X)
        exclusion = self.pool.excluded_in_validation(self.valid, slice(len(neighbors)))
        network.head.train()
        predictions = []
        for block in spans(len(query), max(1, BLOCK_ENTRIES // len(neighbors))):
            excluded = None if exclusion is None else exclusion[block]
            evaluation = Evaluation(network.head, neighbors, query[block], excluded)
            predictions.append(evaluation.attend())
        y_pred = torch.cat(predictions)
        return {"loss": self.get_loss(y_pred, y, rows, training=False), "y_pred": y_pred}

    # Methods that AcceleratedNet overrides:

    def backward(self, loss):
        """Add the gradients of a loss to the parameters' gradients."""
        loss.backward()

    def agree(self, stop):
        """Return whether to stop, on which all processes of a network agree."""
        return stop

    @property
    def loss(self):
        """Return the module of the loss."""
        return self.criterion_


class AcceleratedNet(AccelerateMixin, NONANet):
    """Train on the devices of an :class:`accelerate.Accelerator`.

    A process takes a share of every batch. All processes draw the same further neighbours.
    """

    def initialize_criterion(self):
        """Return the net with the criterion's method: skorch cannot wrap a weightless module."""
        self.criterion_ = self.criterion().__call__
        return self

    def train_step_single(self, batch, **fit_params):
        """Return a step with the mean loss of all processes, so that all stop together."""
        step = NONANet.train_step_single(self, batch, **fit_params)
        return step | {"loss": self.accelerator.reduce(step["loss"], reduction="mean")}

    def backward(self, loss):
        self.accelerator.backward(loss)

    def agree(self, stop):
        """Return whether any process stops, since a single process would wait for ever."""
        votes = torch.tensor(float(stop), device=self.accelerator.device)
        return self.accelerator.reduce(votes, reduction="sum").item() > 0

    @property
    def loss(self):
        return self.criterion_.__self__


class WeightAverage:
    """Average the weights over steps, since steps at a constant rate do not converge.

    With polynomial-decay averaging (Shamir and Zhang, "Stochastic Gradient Descent for Non-smooth
    Optimization", 2013, section 4), the window grows with the number of steps, which suits short
    and long trainings.
    """

    def __init__(self, network: NeighborNetwork):
        self.pairs = [(weight.detach().clone(), weight) for weight in network.parameters()]
        self.n_steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step to the average."""
        self.n_steps += 1
        share = AVERAGED_PART / (AVERAGED_PART + self.n_steps - 1)  # 1 at the first step
        for average, weight in self.pairs:
            average.lerp_(weight, share)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights of the network and the average."""
        for average, weight in self.pairs:
            held = weight.clone()
            weight.copy_(average)
            average.copy_(held)


class RowBatches:
    """Iterate over shuffled batches of ``(indices, targets)`` of a data set's rows.

    Tensors are sliced, which is faster than skorch's collation of single rows. A last batch of one
    row is joined to the batch before, since the row might have no neighbour. An epoch takes
    `n_rows` of the rows, so that validation is frequent on a large table. Processes take equal
    shares of every batch; left-out rows are drawn in later epochs.
    """

    def __init__(
        self,
        dataset: TensorDataset,
        batch_size: int,
        generator: Generator,
        n_rows: int | None = None,
        process: int = 0,
        n_processes: int = 1,
    ):
        self.dataset = dataset
        self.batch_size = batch_size
        self.generator = generator
        self.n_rows = n_rows
        self.process = process
        self.n_processes = n_processes

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        y = self.dataset.tensors[1]
        order = torch.randperm(len(y), generator=self.generator).to(y.device)
        batches = list(order[: self.n_rows].split(self.batch_size))
        if len(batches) > 1 and len(batches[-1]) < max(2, self.n_processes):
            batches[-2:] = [torch.cat(batches[-2:])]
        for batch in batches:
            share = len(batch) // self.n_processes * self.n_processes
            rows = batch[self.process : share : self.n_processes]
            yield rows, y[rows]


class NearBatches(RowBatches):
    """Iterate over batches of cells, whose rows have embeddings that are near one another.

    So a row has near neighbours within its batch, however many rows there are. When all cells have
    been in a batch, the rows are divided anew.
    """

    def __init__(self, *args: Any, pool: NearPool, network: NeighborNetwork, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.pool, self.network = pool, network
        self.cells: list[Tensor] = []

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        y = self.dataset.tensors[1]
        n_batches = math.ceil(min(self.n_rows or len(y), len(y)) / self.batch_size)
        for _ in range(n_batches):
            if not self.cells:
                self.cells = self.pool.cells(self.network)
            n_cells = max(1, round(self.batch_size / len(self.cells[0])))
            rows = torch.cat(self.cells[:n_cells])
            del self.cells[:n_cells]
            yield rows, y[rows]


def whole_batch(dataset: TensorDataset, batch_size: int) -> list[tuple[Tensor, ...]]:
    """Return the validation rows as one batch, since the validation step streams the rows."""
    return [dataset.tensors]


def count_parts(n_rows: int, micro_batch_size: int | None) -> int:
    """Return the number of parts of a batch, of at least 2 rows unless the size is 1."""
    if micro_batch_size is None:
        return 1
    n_parts = math.ceil(n_rows / micro_batch_size)
    return n_parts if micro_batch_size == 1 else max(1, min(n_parts, n_rows // 2))


def resolve_batch_size(
    batch_size: int | str, n: int, n_steps: int = STEPS, extracts: bool = False
) -> int:
    """Return the batch size; 'auto' is a power of two for about `n_steps` steps, within bounds."""
    if batch_size != "auto":
        return int(batch_size)
    largest = MAX_LARGE_BATCH if n > LARGE else MAX_BATCH
    if extracts:
        n_steps, largest = EXTRACTOR_STEPS, MAX_EXTRACTOR_BATCH
    return min(max(2 ** round(math.log2(n / n_steps)), MIN_BATCH), largest)


class QuietAdamW(AdamW):
    """AdamW without wrappers for torch's compiler.

    The first call of a wrapped method imports the compiler, which takes longer than a small fit.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(AdamW.step))
