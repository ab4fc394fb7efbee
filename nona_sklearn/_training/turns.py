"""Networks that train at the same time, each in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from skorch.callbacks import Callback

from .._utils.settings import lone_threads


class FairSemaphore:
    """So many threads work at a time; the others wait, and who asks first is next.

    A semaphore would let go on whoever just stopped.

    Parameters
    ----------
    n_at_a_time : int
        How many.
    """

    def __init__(self, n_at_a_time: int):
        self._n_free = n_at_a_time
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.Lock()
        self.ended = False

    def __enter__(self) -> FairSemaphore:
        mine = threading.Event()
        with self._lock:
            if self._n_free:
                self._n_free -= 1
                return self
            self._waiting.append(mine)
        mine.wait()
        return self

    def __exit__(self, *exception: Any) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._n_free += 1

    def yield_turn(self) -> None:
        """Let those who wait have their turn, and wait for the next one."""
        if self._waiting:
            self.__exit__()
            self.__enter__()


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


def train_in_threads(
    function: Callable[[Any, YieldTurn], Any], items: Sequence[Any], n_at_a_time: int
) -> list:
    """Call a function with each item, each in a thread of its own in which torch has one.

    If a call fails, or the user interrupts, the others end as soon as they look.

    Parameters
    ----------
    function : callable
        Takes an item, and a callback by which training takes turns with the others.
    items : sequence
        What to call it with.
    n_at_a_time : int
        How many threads may compute at a time.

    Returns
    -------
    list
        What it returned, in the order of the items.
    """
    turns = FairSemaphore(n_at_a_time)

    def call(item: Any) -> Any:
        with turns:
            return function(item, YieldTurn(turns))

    with lone_threads(len(items)) as pool:
        calls: list[Future] = []
        try:
            for item in items:  # inside, since an interruption here has to end those submitted
                calls.append(pool.submit(call, item))
            pending = set(calls)
            while pending:  # no wait is endless: on some systems Ctrl-C does not end it
                done, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
        except BaseException:
            turns.ended = True
            raise
    return [each.result() for each in calls]
