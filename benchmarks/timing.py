"""Times of rivals, measured in turns, so that a busy minute hits them all."""

import gc
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch


@contextmanager
def threads(n):
    """Let torch have so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def timed(function, clock=time.perf_counter):
    """Seconds of one call of a function of no arguments."""
    start = clock()
    function()
    return clock() - start


def time_in_turns(rivals, repeats=5, clock=time.perf_counter):
    """Time functions of no arguments, one after another, again and again.

    Parameters
    ----------
    rivals : dict of str to callable
        What to time, by name. Each is called once before, to warm up.
    repeats : int, default=5
        Number of turns.
    clock : callable, default=time.perf_counter
        Returns the time; :func:`time.process_time` leaves out other processes.

    Returns
    -------
    dict of str to float
        Seconds of each: the median of its turns.
    """
    return median_in_turns({name: partial(timed, f, clock) for name, f in rivals.items()}, repeats)


def median_in_turns(rivals, repeats):
    """As :func:`time_in_turns`, of functions that return the seconds that count."""
    for function in rivals.values():
        function()
    seconds = {name: [] for name in rivals}
    gc.disable()
    for _ in range(repeats):
        for name, function in rivals.items():
            seconds[name].append(function())
    gc.enable()
    return {name: float(np.median(times)) for name, times in seconds.items()}


def fitted_exponent(sizes, seconds):
    """Exponent of the power law through times: 1 is linear growth."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
