"""Progress in one line, by tqdm: of a fit, and of what is done part by part."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeVar

from tqdm import tqdm

from .budget import Budget

Part = TypeVar("Part", bound=Sized)


def with_progress(parts: Iterable[Part], n: int, name: str) -> Iterator[Part]:
    """Iterate over parts, and show how many of their n entries are done."""
    with tqdm(total=n, desc=name, unit="") as bar:
        for part in parts:
            yield part
            bar.update(len(part))


class Progress:
    """A line for all networks of a fit, which may be trained at the same time in threads.

    A copy in another process shows nothing, since it would overwrite the line of the first one,
    which counts the networks that are trained.
    """

    def __init__(self, budget: Budget, max_iter: int, shown: bool = True):
        self.budget, self.max_iter, self.shown = budget, max_iter, shown
        self.n_networks = budget.n_networks
        self.epochs = [0] * self.n_networks  # run so far
        self.most = [max_iter] * self.n_networks
        self.bar: tqdm | None = None
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple:
        return Progress, (self.budget, self.max_iter, False)

    def __enter__(self) -> Progress:
        if self.shown:
            self.bar = tqdm(desc=self._counted(0), bar_format="{desc} [{elapsed}{postfix}]")
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
        """Expect no further epochs of a network."""
        with self.lock:
            self.most[network] = self.epochs[network]

    def count(self, n_trained: int) -> None:
        """Show how many networks are trained."""
        with self.lock:
            self._show(self._counted(n_trained))

    def _counted(self, n_trained: int) -> str:
        return f"{n_trained} of {self.n_networks} networks trained"

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
