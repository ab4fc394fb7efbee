"""Time limit and progress line of a fit."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tqdm import tqdm

Part = TypeVar("Part", bound=Sized)

EPOCHS = 20  # least number of epochs for which a network should have time


@dataclass(frozen=True)
class Budget:
    """Divide the time of a fit; a network receives a share when its training begins."""

    end: float  # on the clock of time.time, shared between machines; infinity: no limit
    n_networks: int = 1
    n_workers: int = 1  # number of networks that are trained at a time
    refinement: float = 0.0  # seconds of a network after its epochs

    @classmethod
    def from_now(cls, max_time: float | None, n_networks: int = 1, n_workers: int = 1) -> Budget:
        """Return a budget that starts now and, if `max_time` is None, has no end."""
        # If max_time is a float32, the sum would be rounded to minutes.
        left = math.inf if max_time is None else float(max_time)
        return cls(time.time() + left, n_networks, n_workers)

    @property
    def ends(self) -> bool:
        """Return whether the time is limited."""
        return self.end < math.inf

    def reserve(self, seconds: float, refinement: float = 0.0) -> Budget:
        """Return a budget less `seconds` after all networks, with `refinement` per network."""
        return replace(self, end=self.end - seconds, refinement=self.refinement + refinement)

    def left(self) -> float:
        """Return the seconds that are left, negative after the end."""
        return self.end - time.time()

    def deadline(self, network: int) -> float:
        """Return the end of the training of a network that begins now; networks begin in order.

        A worker divides the time that is left by the number of networks that it will train.
        """
        n_rounds = math.ceil((self.n_networks - network) / self.n_workers)
        return time.time() + self.left() / n_rounds - self.refinement

    def n_affordable(self, most: int, seconds: float, n_workers: int) -> int:
        """Return the number of networks, 1 to `most`, with time for epochs of this duration."""
        n_epochs = n_workers * self.left() / seconds
        return int(min(max(n_epochs / EPOCHS, 1), most))


ENDLESS = Budget(math.inf)


def seconds_of(function: Callable[..., Any], *args: Any) -> float:
    """Return the seconds that a call takes."""
    begin = time.time()
    function(*args)
    return time.time() - begin


class Progress:
    """Show a line for all networks of a fit, which may be trained at the same time in threads.

    A copy in a different process shows nothing, since it would overwrite the first line.
    """

    def __init__(self, budget: Budget, max_iter: int, shown: bool = True):
        self.budget = budget
        self.max_iter = max_iter
        self.shown = shown
        self.n_networks = budget.n_networks
        self.epochs = [0] * self.n_networks  # finished epochs by network
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
        """Show the finished epoch and the loss of a network, given by number."""
        with self.lock:
            self.epochs[network] = epoch
            self._show(f"network {network + 1} of {self.n_networks}, epoch {epoch}, {loss}")

    def end_of(self, network: int) -> None:
        """Mark a network as finished."""
        with self.lock:
            self.most[network] = self.epochs[network]

    def count(self, n_trained: int) -> None:
        """Show the number of trained networks."""
        with self.lock:
            self._show(f"{n_trained} of {self.n_networks} networks trained")

    def _show(self, text: str) -> None:
        if self.bar is None:
            return
        self.bar.set_description_str(text, refresh=False)
        self.bar.set_postfix_str(self._time_left(self.bar), refresh=False)
        self.bar.update(sum(self.epochs) - self.bar.n)  # tqdm decides whether to write

    def _time_left(self, bar: tqdm) -> str:
        """Return an upper limit of the remaining time in words, or an empty text."""
        left, n_done = self.budget.left(), sum(self.epochs)
        if n_done:  # in this process
            mean = bar.format_dict["elapsed"] / n_done
            left = min(left, mean * (sum(self.most) - n_done))
        return f"at most {tqdm.format_interval(left)} left" if 0 < left < math.inf else ""


def with_progress(parts: Iterable[Part], n: int, name: str) -> Iterator[Part]:
    """Yield the parts, and show the number of finished entries among n."""
    with tqdm(total=n, desc=name, unit="") as bar:
        for part in parts:
            yield part
            bar.update(len(part))
