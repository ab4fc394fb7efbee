"""Networks that train at the same time, each in a thread of its own."""

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


class CountedParallel(Parallel):
    """Joblib's, whose count of what is done goes to a line of progress, too."""

    def __init__(self, n_jobs: int | None, progress: Progress):
        super().__init__(n_jobs)
        self.progress = progress

    def print_progress(self) -> None:
        super().print_progress()
        self.progress.count(self.n_completed_tasks)
