"""How long a fit may take, and how networks share that time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

EPOCHS = 20  # that a network should have time for


@dataclass(frozen=True)
class Budget:
    """The time of a whole fit, of which a network gets its share when its training begins."""

    end: float  # on the clock of time.time, which other machines have, too; infinity: no limit
    n_networks: int = 1
    n_workers: int = 1  # how many networks are trained at a time
    refinement: float = 0.0  # seconds of each network after its epochs

    @classmethod
    def from_now(cls, max_time: float | None, n_networks: int = 1, n_workers: int = 1) -> Budget:
        """Start the clock; None sets no end."""
        # As a float32, which the user may pass, the sum would be rounded to minutes.
        left = math.inf if max_time is None else float(max_time)
        return cls(time.time() + left, n_networks, n_workers)

    @property
    def ends(self) -> bool:
        """Whether the time is limited."""
        return self.end < math.inf

    def reserve(self, seconds: float, refinement: float = 0.0) -> Budget:
        """Keep time for what follows all networks, and for what follows the epochs of each."""
        return replace(self, end=self.end - seconds, refinement=self.refinement + refinement)

    def shared(self, n_networks: int, n_workers: int) -> Budget:
        """The same time for so many networks."""
        return replace(self, n_networks=n_networks, n_workers=n_workers)

    def left(self) -> float:
        """How many seconds are left; negative after the end."""
        return self.end - time.time()

    def deadline(self, network: int) -> float:
        """When the training of a network should end that begins now; networks begin in order.

        A worker divides the time that is left by the number of networks that it will train.
        """
        n_rounds = math.ceil((self.n_networks - network) / self.n_workers)
        return time.time() + self.left() / n_rounds - self.refinement

    def n_affordable(self, most: int, seconds: float, n_workers: int) -> int:
        """Number of networks, at least one, that have time for epochs of so many seconds."""
        n_epochs = n_workers * self.left() / seconds
        return int(min(max(n_epochs / EPOCHS, 1), most))


def seconds_of(function: Callable[..., Any], *args: Any) -> float:
    """How long a call takes."""
    begin = time.time()
    function(*args)
    return time.time() - begin
