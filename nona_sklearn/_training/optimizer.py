"""AdamW without torch's compiler."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.optim import AdamW
from torch.optim.optimizer import Optimizer


class QuietAdamW(AdamW):
    """AdamW whose methods are not wrapped for torch's compiler.

    torch wraps some of an optimizer's methods so that the compiler skips them. Their first call
    imports the compiler, which takes longer than a small fit. These are the methods themselves.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    _step = inspect.unwrap(AdamW.step)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return self._step(closure)
