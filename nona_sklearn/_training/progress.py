"""How long a fit may take, and a line that shows how far it is."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tqdm import tqdm

Part = TypeVar("Part", bound=Sized)

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


class Progress:
    """A line for all networks of a fit, which may be trained at the same time in threads.

    A copy in another process shows nothing, since it would overwrite the line of the first one,
    which counts the networks that are trained.
    """

    def __init__(self, budget: Budget, max_iter: int, shown: bool = True):
        self.budget = budget
        self.max_iter = max_iter
        self.shown = shown
        self.n_networks = budget.n_networks
        self.epochs = [0] * self.n_networks  # run so far
        self.most = [max_iter] * self.n_networks
        self.bar: tqdm | None = None
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple:
        return Progress, (self.budget, self.max_iter, False)

    def __enter__(self) -> Progress:
        if self.shown:
            begin = f"0 of {self.n_networks} networks trained"
            self.bar = tqdm(desc=begin, bar_format="{desc} [{elapsed}{postfix}]")
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        if kind is None:
            self.count(self.n_networks)
        if self.bar is not None:
            self.bar.close()

    def follow(self, network: int, epoch: int, loss: str) -> None:
        """Show that a network, by its number, has run an epoch, and its loss."""
        with self.lock:
            self.epochs[network] = epoch
            self._show(f"network {network + 1} of {self.n_networks}, epoch {epoch}, {loss}")

    def end_of(self, network: int) -> None:
        """Expect no more epochs of a network."""
        with self.lock:
            self.most[network] = self.epochs[network]

    def count(self, n_trained: int) -> None:
        """Show how many networks are trained."""
        with self.lock:
            self._show(f"{n_trained} of {self.n_networks} networks trained")

    def _show(self, text: str) -> None:
        if self.bar is None:
            return
        self.bar.set_description_str(text, refresh=False)
        self.bar.set_postfix_str(self._time_left(self.bar), refresh=False)
        self.bar.update(sum(self.epochs) - self.bar.n)  # tqdm decides whether to write

    def _time_left(self, bar: tqdm) -> str:
        """An upper limit of the time left, if there is one."""
        left, n_done = self.budget.left(), sum(self.epochs)
        if n_done:  # in this process
            mean = bar.format_dict["elapsed"] / n_done
            left = min(left, mean * (sum(self.most) - n_done))
        return f"at most {tqdm.format_interval(left)} left" if 0 < left < math.inf else ""


def with_progress(parts: Iterable[Part], n: int, name: str) -> Iterator[Part]:
    """Iterate over parts, and show how many of their n entries are done."""
    with tqdm(total=n, desc=name, unit="") as bar:
        for part in parts:
            yield part
            bar.update(len(part))
