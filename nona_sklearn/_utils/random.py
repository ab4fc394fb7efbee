"""Context managers that set torch's global seeds and modes for a block, and restore them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from .._utils.precision import STORED
from .threads import ForkSafeLock

_SEEDING = ForkSafeLock()  # torch's global generator serves one fit at a time


@contextmanager
def local_seed(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch inside the block only, for one thread at a time.

    Initial weights use the CPU's generator; dropout uses the device's generator.
    """
    devices = [device] if device is not None and device.type == "cuda" else []
    with _SEEDING.held(), torch.random.fork_rng(devices=devices), ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(STORED)
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        yield


@contextmanager
def plain_torch() -> Iterator[None]:
    """Disable the surrounding autocast, inference mode and default device inside the block."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
