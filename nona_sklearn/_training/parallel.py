"""Networks that are trained at the same time, in threads or in processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from joblib import Parallel

from .._utils.threads import FairSemaphore, lone_threads
from .callbacks import YieldTurn
from .progress import Progress


def train_in_threads(
    function: Callable[[Any, YieldTurn], Any], items: Sequence[Any], n_at_a_time: int
) -> list:
    """Call a function with each item, in threads in each of which torch has one; returns a list.

    The function also takes a callback, by which trainings take turns: `n_at_a_time` of them
    compute at a time. If a call fails, or the user interrupts, the others end at their next batch.
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


class CountedParallel(Parallel):
    """joblib's Parallel, which also shows in the progress line how many networks are trained."""

    def __init__(self, n_jobs: int | None, progress: Progress):
        super().__init__(n_jobs)
        self.progress = progress

    def print_progress(self) -> None:
        super().print_progress()
        self.progress.count(self.n_completed_tasks)
