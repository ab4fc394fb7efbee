"""How long a fit may train: each network's share of the time, and an end at its epoch's end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """The time of a whole fit, of which a network gets its share when its training begins.

    Parameters
    ----------
    end : float
        When all training should be over, as :func:`time.time` tells it: processes of other
        machines know no other clock. Infinity: whenever it is.
    n_networks, n_workers : int
        How many networks there are, and how many are trained at a time.
    """

    end: float
    n_networks: int
    n_workers: int

    @classmethod
    def from_now(cls, max_time: float | None, n_networks: int, n_workers: int) -> Budget:
        """Start the clock; None sets no end."""
        # A float32 would make one of the sum, which counts in minutes.
        left = math.inf if max_time is None else float(max_time)
        return cls(time.time() + left, n_networks, n_workers)

    def left(self) -> float:
        """How many seconds are left; below 0, how many too many have passed."""
        return self.end - time.time()

    def deadline(self, network: int) -> float:
        """When the training of a network should end that begins now, the others in order.

        A worker shares the time that is left among as many networks as it will train.
        """
        n_rounds = math.ceil((self.n_networks - network) / self.n_workers)
        return time.time() + self.left() / n_rounds
