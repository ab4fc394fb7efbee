"""The optimizer, without what its first step would import."""

import inspect
from typing import Any

import torch
from torch.optim import AdamW
from torch.optim.optimizer import Optimizer


class QuietAdamW(AdamW):
    """AdamW that leaves torch's compiler alone.

    torch wraps some of an optimizer's methods so that the compiler passes them by. The first call
    imports the compiler for that, which takes longer than a small fit. These are the methods
    themselves; where torch wraps nothing, they are what they were.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    _step = inspect.unwrap(AdamW.step)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        return self._step(closure)
