"""The process's settings, which a fit needs for itself and must leave as they are.

torch keeps its random generators, its default type and device, autocast and the number of its
threads for the whole process or the whole thread. What we need otherwise is set here, for as
long as it is needed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")

if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    # OpenMP's threads are not copied to a forked process, which would wait for them for ever.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class cached_property(Generic[T]):
    """A property that is computed once; as functools', without a lock.

    In Python 3.11 functools' has one lock for all objects of a class, which threads wait for, and
    which a forked process may find locked for ever.
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
    """A lock that a forked process finds open, whoever held it before: nobody is left to.

    A thread that holds it may take it again.
    """

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock inside the block."""
        with self._lock:
            yield


EDITING = ForkSafeLock()  # one change of a fitted estimator at a time; readers take no lock
_STARTING = ForkSafeLock()  # what new threads begin with is changed for one pool at a time
_SEEDING = ForkSafeLock()  # torch's global generator serves one fit at a time


@contextmanager
def local_seed(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch inside the block only, for one thread at a time.

    Layers draw their initial weights from torch's global CPU generator, in its default type,
    and dropout from the generator of its device. We put all of them back.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with _SEEDING.held(), torch.random.fork_rng(devices=devices), _default_dtype(torch.float32):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Train as if nothing were set around the block: no autocast, no inference mode."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


class Workers:
    """Threads in which torch computes by itself, so that a tile is not shared among them.

    torch's number of threads is each thread's own, but what is set last is also what threads
    start with that have yet to begin. Set anew for each prediction, two predictions at once
    could leave the process at one thread for good. So workers are set once, when they start, and
    what new threads begin with is put back in the same moment.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._forget()
        if hasattr(os, "register_at_fork"):  # threads are not copied
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], n_threads: int) -> list:
        """Call a function with each item, in `n_threads` threads: a list of answers."""
        n_threads = min(n_threads, len(items))
        if n_threads == 0:
            return []

        def work(first: int) -> list:
            return [function(item) for item in items[first::n_threads]]

        # joblib's threads look for answers every 10 ms, in which a small one is long done.
        shares = list(self._at_least(n_threads).map(work, range(n_threads)))
        return [shares[i % n_threads][i // n_threads] for i in range(len(items))]

    def _at_least(self, n_threads: int) -> ThreadPoolExecutor:
        with self._lock.held():
            if self._pool is None or self._size < n_threads:
                self._pool, self._size = lone_threads(n_threads), n_threads
            return self._pool


def lone_threads(n_threads: int) -> ThreadPoolExecutor:
    """Start threads in each of which torch has one thread; other threads keep their number."""
    started = threading.Barrier(n_threads)  # so that each thread takes one of the calls

    def compute_alone(_) -> None:
        torch.get_num_threads()  # a thread's first call takes what all threads start with
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
    """Call a function where torch's number of threads is that of a thread which begins now."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


WORKERS = Workers()
