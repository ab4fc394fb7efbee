"""How long a fit may train, and how networks share that time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """The time of a whole fit, of which a network gets its share when its training begins."""

    end: float  # on the clock of time.time, which other machines have, too; infinity: no limit
    n_networks: int
    n_workers: int  # how many networks are trained at a time

    @classmethod
    def from_now(cls, max_time: float | None, n_networks: int, n_workers: int) -> Budget:
        """Start the clock; None sets no end."""
        # As a float32, which the user may pass, the sum would be rounded to minutes.
        left = math.inf if max_time is None else float(max_time)
        return cls(time.time() + left, n_networks, n_workers)

    def left(self) -> float:
        """How many seconds are left; negative after the end."""
        return self.end - time.time()

    def deadline(self, network: int) -> float:
        """When the training of a network should end that begins now; networks begin in order.

        A worker divides the time that is left by the number of networks that it will train.
        """
        n_rounds = math.ceil((self.n_networks - network) / self.n_workers)
        return time.time() + self.left() / n_rounds
