"""A running average of a network's weights: a steadier network than any single step's."""

from __future__ import annotations

import copy
from typing import Any

from skorch.callbacks import Callback
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

REMEMBERED = 9  # of so many parts of the steps, about the last one counts


class WeightAveraging(Callback):
    """Let each epoch be judged, and kept, by the running average of its steps' weights.

    Steps at a constant rate never settle; their average does, and follows at the same time.
    Polynomial-decay averaging (Shamir and Zhang, "Stochastic Gradient Descent for Non-smooth
    Optimization", 2013, section 4): its window grows with the number of steps, so that it suits
    short and long trainings alike.

    From an epoch's first validation batch until the next epoch begins, the net's module holds the
    average; callbacks that stand behind this one see that.
    """

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        self.average_ = AveragedModel(net.network, multi_avg_fn=_follow)
        self.trained_: dict | None = None

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        if self.trained_ is not None:
            net.network.load_state_dict(self.trained_)
            self.trained_ = None

    def on_batch_begin(self, net: Any, training: bool = True, **kwargs: Any) -> None:
        if not training:
            self._show(net)

    def on_batch_end(self, net: Any, training: bool = True, **kwargs: Any) -> None:
        if training:
            self.average_.update_parameters(net.network)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self._show(net)

    def _show(self, net: Any) -> None:
        """Put the average in the place of the trained weights, unless it is there."""
        if self.trained_ is None:
            self.trained_ = copy.deepcopy(net.network.state_dict())
            net.network.load_state_dict(self.average_.module.state_dict())


def _follow(averaged: Any, current: Any, n_averaged: Tensor | int) -> None:
    """Move the averages of `n_averaged` steps towards another's weights, in place."""
    n = int(n_averaged)
    get_ema_multi_avg_fn(n / (n + REMEMBERED))(averaged, current, n_averaged)
