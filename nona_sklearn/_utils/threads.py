"""Threads in which torch computes on one core, locks that survive a fork, and snapshots.

Readers of an object take a snapshot of it. Writers replace all its attributes in one step.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


def _after_fork(function: Callable[[], Any]) -> None:
    """Call a function in every forked child process; Windows does not fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


# A forked process would wait for ever for OpenMP's threads, which are not copied.
_after_fork(lambda: torch.set_num_threads(1))


class cached_property(Generic[T]):
    """Compute a property once, as the property of functools does, but without a lock.

    In Python 3.11, functools has one lock per class, which stops threads, and may stay locked in a
    forked process.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        value = vars(instance)[self.name] = self.function(instance)
        return value


class ForkSafeLock:
    """Lock re-entrantly, and be open in a forked process, which lacks the holding thread."""

    def __init__(self) -> None:
        self._renew()
        _after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock inside the block."""
        with self._lock:
            yield


_ONE_BLAS_THREAD = ForkSafeLock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the block, since sums depend on the number of threads.

    A lock ensures that the number, which is global, is restored.
    """
    with _ONE_BLAS_THREAD.held(), _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Return what limits the libraries of NumPy and SciPy, which take 5 ms to be listed."""
    return ThreadpoolController()


class FairSemaphore:
    """Limit the number of running threads, which continue in the order of waiting.

    With Python's semaphore, the thread that has just stopped would often continue.
    """

    def __init__(self, n_at_a_time: int):
        self._n_free = n_at_a_time
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.Lock()
        self.ended = False  # whether all threads should end

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
        """Let waiting threads continue, and wait for the next turn."""
        if self._waiting:
            self.__exit__()
            self.__enter__()


class Workers:
    """Keep threads in which torch has a single thread.

    torch's number of threads belongs to a thread, but new threads start with the last number set.
    If predictions set the number, two at a time could leave the process at one thread. Therefore,
    workers are started once.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._forget()
        _after_fork(self._forget)  # threads are not copied

    def _forget(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], n_threads: int) -> list:
        """Return the results of a function for all items, computed in `n_threads` threads."""
        n_threads = min(n_threads, len(items))
        if n_threads == 0:
            return []

        def work(first: int) -> list:
            return [function(item) for item in items[first::n_threads]]

        # joblib's threads check for results every 10 ms, which is slow for small results.
        with self._lock.held():
            if self._pool is None or self._size < n_threads:
                self._pool, self._size = lone_threads(n_threads), n_threads
            pool = self._pool
        shares = list(pool.map(work, range(n_threads)))
        return [shares[i % n_threads][i // n_threads] for i in range(len(items))]


WORKERS = Workers()
_STARTING = ForkSafeLock()  # one pool at a time may change the number for new threads


def lone_threads(n_threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads in which torch has one thread; existing threads do not change."""
    started = threading.Barrier(n_threads)  # so that every thread takes one call

    def compute_alone(_: int) -> None:
        torch.get_num_threads()  # a thread's first call sets the initial number
        started.wait()
        torch.set_num_threads(1)

    with _STARTING.held():
        before = _in_new_thread(torch.get_num_threads)
        pool = ThreadPoolExecutor(n_threads, "nona")
        try:
            list(pool.map(compute_alone, range(n_threads)))
        except BaseException:  # a thread could not be started, or the user interrupts
            started.abort()
            pool.shutdown()
            raise
        finally:
            _in_new_thread(lambda: torch.set_num_threads(before))
    return pool


def _in_new_thread(function: Callable[[], Any]) -> Any:
    """Return the result of a function in a new thread, with the number for new threads."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


EDITING = ForkSafeLock()  # one change of a fitted estimator at a time; readers take no lock


def snapshot(thing: T) -> T:
    """Return a copy of an object with its present attributes, which threads may replace."""
    copied = object.__new__(type(thing))
    vars(copied).update(vars(thing))
    return copied


@contextmanager
def replaced_when_done(thing: T, lock: AbstractContextManager[Any] | None = None) -> Iterator[T]:
    """Yield a copy, whose attributes replace the object's under a lock unless the block fails."""
    before, twin = vars(snapshot(thing)), snapshot(thing)
    yield twin
    with lock or nullcontext():
        # Attributes that a thread sets on the object meanwhile are kept.
        new = {k: value for k, value in vars(twin).items() if before.get(k, twin) is not value}
        dropped = before.keys() - vars(twin).keys()
        kept = {k: value for k, value in vars(thing).items() if k not in dropped}
        thing.__dict__ = kept | new
