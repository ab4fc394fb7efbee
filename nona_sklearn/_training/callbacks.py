"""Callbacks of a training: averaged weights, deadlines, progress, turns."""

from __future__ import annotations

import copy
import math
import time
from typing import Any

import torch
from skorch.callbacks import Callback

from .._utils.threads import FairSemaphore
from .progress import Progress

WINDOW = 9  # the average extends over about one of so many parts of the steps


class WeightAveraging(Callback):
    """Validate and keep the running average of the steps' weights in place of the last ones.

    Steps at a constant rate never converge, but their average does. With polynomial-decay
    averaging (Shamir and Zhang, "Stochastic Gradient Descent for Non-smooth Optimization", 2013,
    section 4), its window grows with the number of steps, so that it suits short and long
    trainings alike.

    From an epoch's first validation batch to the next one's first training batch, the net's module
    holds the average, and so it does for the callbacks after this one when an epoch ends.
    """

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        parameters = list(net.network.parameters())  # listed once: that takes as long as a step
        # The average and the trained weights of each, swapped while the module holds the average.
        self.pairs_ = [(copy.deepcopy(weight), weight) for weight in parameters]
        self.swapped_ = False
        self.n_steps_ = 0

    def on_batch_begin(self, net: Any, training: bool = True, **kwargs: Any) -> None:
        self._hold_average(not training)

    @torch.no_grad()
    def on_batch_end(self, net: Any, training: bool = True, **kwargs: Any) -> None:
        if training:
            self.n_steps_ += 1
            share = WINDOW / (WINDOW + self.n_steps_ - 1)  # all of it, at first
            for average, weight in self.pairs_:
                average.lerp_(weight, share)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self._hold_average(True)

    @torch.no_grad()
    def _hold_average(self, average: bool) -> None:
        if self.swapped_ == average:
            return
        for other, weight in self.pairs_:
            held = weight.clone()
            weight.copy_(other)
            other.copy_(held)
        self.swapped_ = average


class Deadline(Callback):
    """End training as early stopping does, before an epoch that would end after a deadline.

    It would take as long as the epoch before.
    """

    def __init__(self, deadline: float):
        self.deadline = deadline

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        self.passed_ = False

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        self.began_ = time.time()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        now = time.time()
        self.passed_ = net.agree(now + (now - self.began_) > self.deadline)
        if self.passed_:
            raise KeyboardInterrupt


class ReportEpochs(Callback):
    """Show the training of one network in the progress line."""

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
    """Yield to waiting trainings after each epoch, and end when all are to end."""

    def __init__(self, turns: FairSemaphore):
        self.turns = turns

    def on_batch_begin(self, net: Any, **kwargs: Any) -> None:
        if self.turns.ended:
            raise KeyboardInterrupt

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self.turns.yield_turn()
