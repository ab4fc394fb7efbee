"""A running average of a network's weights: a steadier network than any single step's."""

from __future__ import annotations

import copy
import math
import time
from typing import Any

import torch
from skorch.callbacks import Callback

from .._utils.threads import FairSemaphore
from .progress import Progress

PARTS = 9  # of so many parts of the steps, about the last one counts


class WeightAveraging(Callback):
    """Let each epoch be judged, and kept, by the running average of its steps' weights.

    Steps at a constant rate never settle; their average does, and follows at the same time.
    Polynomial-decay averaging (Shamir and Zhang, "Stochastic Gradient Descent for Non-smooth
    Optimization", 2013, section 4): its window grows with the number of steps, so that it suits
    short and long trainings alike.

    From an epoch's first validation batch to the next one's first training batch, the net's module
    holds the average: callbacks that stand behind this one see that when an epoch ends.
    """

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        parameters = list(net.network.parameters())  # found once: a walk takes as long as a step
        # Of each the average and the trained, or the other way round while the average is shown.
        self.pairs_ = [(copy.deepcopy(weight), weight) for weight in parameters]
        self.shown_ = False
        self.n_steps_ = 0

    def on_batch_begin(self, net: Any, training: bool = True, **kwargs: Any) -> None:
        self._show(not training)

    @torch.no_grad()
    def on_batch_end(self, net: Any, training: bool = True, **kwargs: Any) -> None:
        if not training:
            return
        self.n_steps_ += 1
        share = PARTS / (PARTS + self.n_steps_ - 1)  # all of it, at first
        for average, weight in self.pairs_:
            average.lerp_(weight, share)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self._show(True)

    @torch.no_grad()
    def _show(self, average: bool) -> None:
        """Let the net hold the average, or the weights that are trained."""
        if self.shown_ == average:
            return
        for other, weight in self.pairs_:
            held = weight.clone()
            weight.copy_(other)
            other.copy_(held)
        self.shown_ = average


class Deadline(Callback):
    """End training as early stopping does, with the first epoch that ends after a deadline."""

    def __init__(self, deadline: float):
        self.deadline = deadline

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        self.passed_ = False

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self.passed_ = net.agree(time.time() >= self.deadline)
        if self.passed_:
            raise KeyboardInterrupt


class ReportEpochs(Callback):
    """Let a line of progress follow the training of one network."""

    def __init__(self, progress: Progress, network: int):
        self.progress = progress
        self.network = network

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        self.best_ = math.inf

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        epoch = net.history[-1]
        name = "valid_loss" if "valid_loss" in epoch else "train_loss"
        self.best_ = min(self.best_, epoch[name])
        self.progress.follow(self.network, epoch["epoch"], f"best {name} {self.best_:.4g}")

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        self.progress.end_of(self.network)


class YieldTurn(Callback):
    """Train an epoch in a turn, and end if all are to end.

    Parameters
    ----------
    turns : Turns
        Whose turns.
    """

    def __init__(self, turns: FairSemaphore):
        self.turns = turns

    def on_batch_begin(self, net: Any, **kwargs: Any) -> None:
        if self.turns.ended:
            raise KeyboardInterrupt

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self.turns.yield_turn()
