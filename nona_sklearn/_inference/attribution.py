"""Attribution: how much each feature has to do with the difference between two rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .._utils.arrays import spans

N_STEPS = 32  # points on the line between two rows
ROWS_AT_ONCE = 2**13


def integrated_gradients(
    function: Callable[[Tensor, Tensor], Tensor], start: Tensor, end: Tensor
) -> Tensor:
    """Attribute the change of a function between two points to their coordinates.

    It is the mean gradient along the line from one to the other, times the difference
    (Sundararajan et al., "Axiomatic Attribution for Deep Networks", 2017, equation 1), by the
    midpoint rule. What the rule leaves of the change is shared out in proportion to the
    attributions' sizes, so that they sum to it.

    Parameters
    ----------
    function : callable
        Maps points (m, d), and the numbers (m,) of the pairs that they are of, to values (m,).
    start, end : Tensor of shape (p, d)
        The points.

    Returns
    -------
    Tensor of shape (p, d)
        Sums of its rows are ``function(end) - function(start)``. Equal coordinates have 0.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn._inference.attribution import integrated_gradients
    >>> start, end = torch.zeros(1, 3), torch.tensor([[1.0, 2.0, 0.0]])
    >>> integrated_gradients(lambda x, _: x[:, 0] * x[:, 1] + x[:, 2], start, end)
    tensor([[1., 1., 0.]])
    """
    pairs = torch.arange(len(start), device=start.device)
    blocks = spans(len(start), max(1, ROWS_AT_ONCE // N_STEPS))
    gradients = [start[:0]] + [
        _mean_gradient(function, start[block], end[block], pairs[block]) for block in blocks
    ]
    attributions = torch.cat(gradients) * (end - start)
    with torch.no_grad():
        change = function(end, pairs) - function(start, pairs)
    sizes = attributions.abs()
    total = sizes.sum(dim=1, keepdim=True)
    shares = torch.where(total > 0, sizes / total, 0.0)
    return attributions + shares * (change - attributions.sum(dim=1))[:, None]


def _mean_gradient(
    function: Callable[[Tensor, Tensor], Tensor], start: Tensor, end: Tensor, pairs: Tensor
) -> Tensor:
    """The mean gradient at the midpoints of equal parts of lines, (p, d)."""
    steps = (torch.arange(N_STEPS, dtype=start.dtype, device=start.device) + 0.5) / N_STEPS
    points = torch.lerp(start[:, None], end[:, None], steps[None, :, None])
    with torch.enable_grad():
        points = points.flatten(0, 1).requires_grad_()
        values = function(points, pairs.repeat_interleave(N_STEPS))
        (gradient,) = torch.autograd.grad(values.sum(), points)
    return gradient.unflatten(0, (-1, N_STEPS)).mean(dim=1)


def exchange_in_turn(values: Callable[[np.ndarray], np.ndarray], n_columns: int) -> np.ndarray:
    """Attribute the change of a function without gradients between rows to their columns.

    Cells of the start are exchanged for those of the end one after another, in the order of the
    columns and in the reverse; a column has the mean of the two changes. Of two columns, this is
    the Shapley value.

    Parameters
    ----------
    values : callable
        Takes which columns are of the end, bool (n_columns,), and returns values of p pairs of
        rows, (p, n_outputs).
    n_columns : int
        Number of columns.

    Returns
    -------
    ndarray of shape (p, n_columns, n_outputs)
        The sum over columns is the change from start to end.

    Examples
    --------
    >>> import numpy as np
    >>> from nona_sklearn._inference.attribution import exchange_in_turn
    >>> start, end = np.zeros((1, 3)), np.array([[1.0, 2.0, 0.0]])
    >>> def function(is_of_end):
    ...     x = np.where(is_of_end, end, start)
    ...     return x[:, [0]] * x[:, [1]] + x[:, [2]]
    >>> exchange_in_turn(function, 3)[..., 0]
    array([[1., 1., 0.]])
    """
    columns = np.arange(n_columns)
    upwards = np.stack([values(columns < k) for k in range(n_columns + 1)], axis=1)
    downwards = np.stack([values(columns >= k) for k in range(n_columns + 1)], axis=1)
    return (np.diff(upwards, axis=1) - np.diff(downwards, axis=1)) / 2
