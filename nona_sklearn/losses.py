"""Losses: what classifiers minimise, of probabilities and one-hot truths.

Both are of shape (q, n_classes of all outputs): the classes of several outputs stand side by side,
and an output's probabilities sum to 1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ._utils.validation import is_real

__all__ = ["ASSoftmaxLoss", "LogLoss", "MultilabelASSoftmaxLoss"]

#: Of an output's variance: smaller losses are about equally good beside those of other outputs.
NEGLIGIBLE_LOSS = 1e-3


class LogLoss(nn.Module):
    """Negative logarithm of the probability of the true class.

    Parameters
    ----------
    sizes : int or sequence of int, optional
        How many classes each output has. None: there is one output.
    reduction : {'mean', 'none'}, default='mean'
        The mean over rows and outputs, or a loss for each of them, (q, n_outputs).

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.losses import LogLoss
    >>> probabilities = torch.tensor([[0.5, 0.5, 0.9, 0.1], [0.2, 0.8, 0.6, 0.4]])
    >>> truth = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    >>> LogLoss((2, 2), reduction="none")(probabilities, truth)
    tensor([[0.6931, 0.1054],
            [0.2231, 0.9163]])
    >>> LogLoss((2, 2))(probabilities, truth)
    tensor(0.4845)
    """

    def __init__(self, sizes: Sequence[int] | int | None = None, reduction: str = "mean"):
        super().__init__()
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', got {reduction!r}")
        self.sizes, self.reduction = sizes, reduction

    def forward(self, probabilities: Tensor, truth: Tensor) -> Tensor:
        """Loss of predicted probabilities.

        Parameters
        ----------
        probabilities : Tensor of shape (q, n_classes of all outputs)
            Predicted probabilities.
        truth : Tensor of shape (q, n_classes of all outputs)
            One-hot true classes, in the same order.

        Returns
        -------
        Tensor of shape () or (q, n_outputs)
            The mean loss; or all, with ``reduction='none'``.
        """
        true = [block.sum(dim=1) for block in blocks(probabilities * truth, self.sizes)]
        return self.reduce(-log(torch.stack(true, dim=1)))

    def reduce(self, losses: Tensor) -> Tensor:
        """The mean, or each loss, as `reduction` has it."""
        return losses if self.reduction == "none" else losses.mean()


class ASSoftmaxLoss(LogLoss):
    """Log loss that, in training, ignores classes below the true one by a margin.

    A class whose probability is more than `margin` below that of the true class is left out of
    the softmax [1]_. If all wrong classes are, loss and gradient are 0. In eval mode this is the
    log loss.

    Parameters
    ----------
    sizes : int or sequence of int, optional
        How many classes each output has. None: there is one output.
    margin : float, default=0.1
        From 0 to 1; 1 is the log loss.
    reduction : {'mean', 'none'}, default='mean'
        The mean over rows and outputs, or a loss for each of them.

    References
    ----------
    .. [1] Lv et al., "AS-Softmax", 2025, arXiv:2508.03175.

    Examples
    --------
    >>> import torch
    >>> from nona_sklearn.losses import ASSoftmaxLoss
    >>> probabilities = torch.tensor([[0.5, 0.45, 0.05], [0.1, 0.7, 0.2]])
    >>> truth = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> loss = ASSoftmaxLoss(reduction="none")

    The first row's third class is left out, and both wrong classes of the second row:

    >>> loss(probabilities, truth)
    tensor([[0.6419],
            [0.0000]])
    >>> loss.eval()(probabilities, truth)
    tensor([[0.6931],
            [0.3567]])
    """

    def __init__(
        self,
        sizes: Sequence[int] | int | None = None,
        margin: float = 0.1,
        reduction: str = "mean",
    ):
        super().__init__(sizes, reduction)
        self.margin = check_margin(margin)

    def forward(self, probabilities: Tensor, truth: Tensor) -> Tensor:
        """Loss of predicted probabilities: in training of the classes that are not left out.

        Parameters
        ----------
        probabilities : Tensor of shape (q, n_classes of all outputs)
            Predicted probabilities.
        truth : Tensor of shape (q, n_classes of all outputs)
            One-hot true classes, in the same order.

        Returns
        -------
        Tensor of shape () or (q, n_outputs)
            The mean loss; or all, with ``reduction='none'``.
        """
        if not self.training:
            return super().forward(probabilities, truth)
        logits = log(probabilities).masked_fill(self.left_out(probabilities, truth), -torch.inf)
        pairs = zip(blocks(logits, self.sizes), blocks(truth, self.sizes), strict=True)
        losses = [
            logit.logsumexp(dim=1, keepdim=True)
            - logit.gather(1, true.argmax(dim=1, keepdim=True))
            for logit, true in pairs
        ]
        return self.reduce(torch.cat(losses, dim=1))

    def left_out(self, probabilities: Tensor, truth: Tensor) -> Tensor:
        """Which classes the true one of their output beats by more than the margin, bool."""
        of_true = blocks(probabilities * truth, self.sizes)
        leads = [
            true.sum(dim=1, keepdim=True) - probability
            for probability, true in zip(blocks(probabilities, self.sizes), of_true, strict=True)
        ]
        return torch.cat(leads, dim=1) > self.margin


class MultilabelASSoftmaxLoss(LogLoss):
    """:class:`~nona_sklearn.losses.ASSoftmaxLoss` of several labels, of which a row may have any.

    In training, the labels of a row are compared by z, the logarithms of their odds, and p, the
    softmax of z [1]_. A label that the row lacks is left out if p of all labels that it has are
    more than `margin` above; a label that it has, if its p is more than `margin` above those
    of all that it lacks. No label is left out if a row has all labels or none. The loss is
    log(1 + sum of exp(z) of those it lacks) + log(1 + sum of exp(-z) of those it has), of shape
    (q, 1). In eval mode this is the log loss.

    Parameters
    ----------
    margin : float, default=0.1
        As for :class:`ASSoftmaxLoss`.
    reduction : {'mean', 'none'}, default='mean'
        As for :class:`ASSoftmaxLoss`.

    References
    ----------
    .. [1] Lv et al., "AS-Softmax", 2025, arXiv:2508.03175.

    Examples
    --------
    Two labels, of which the row has the second; their odds are 1 to 1 and 3 to 1. Columns are
    the first one's absence, its presence, the second one's absence, and so on:

    >>> import torch
    >>> from nona_sklearn.losses import MultilabelASSoftmaxLoss
    >>> probabilities = torch.tensor([[0.5, 0.5, 0.25, 0.75]])
    >>> truth = torch.tensor([[1.0, 0.0, 0.0, 1.0]])

    p are 1/4 and 3/4: the second leads by 1/2.

    >>> MultilabelASSoftmaxLoss(margin=0.6)(probabilities, truth)  # log(1 + 1) + log(1 + 1/3)
    tensor(0.9808)
    >>> MultilabelASSoftmaxLoss(margin=0.4)(probabilities, truth)
    tensor(0.)
    """

    def __init__(self, margin: float = 0.1, reduction: str = "mean"):
        super().__init__(2, reduction)
        self.margin = check_margin(margin)

    def forward(self, probabilities: Tensor, truth: Tensor) -> Tensor:
        """Loss of predicted probabilities: in training of the labels that are not left out.

        Parameters
        ----------
        probabilities : Tensor of shape (q, 2 n_labels)
            Predicted probabilities of the absence and the presence of each label.
        truth : Tensor of shape (q, 2 n_labels)
            One-hot true classes, in the same order.

        Returns
        -------
        Tensor of shape () or (q, 1)
            The mean loss; or all, with ``reduction='none'``.
        """
        if not self.training:
            return super().forward(probabilities, truth)
        z, has = log_odds(probabilities), present(truth)
        left_out = self.left_out(probabilities, truth)
        lacked = log_one_plus(z.masked_fill(has | left_out, -torch.inf))
        had = log_one_plus((-z).masked_fill(~has | left_out, -torch.inf))
        return self.reduce(lacked + had)

    def left_out(self, probabilities: Tensor, truth: Tensor) -> Tensor:
        """Which labels, (q, n_labels), are right by more than the margin."""
        p, has = log_odds(probabilities).softmax(dim=1), present(truth)
        lowest = p.masked_fill(~has, torch.inf).amin(dim=1, keepdim=True)
        highest = p.masked_fill(has, -torch.inf).amax(dim=1, keepdim=True)
        lead = torch.where(has, p - highest, lowest - p)
        return (lead > self.margin) & lead.isfinite()  # infinite: there is no rival


def check_margin(margin: float) -> float:
    """Refuse what no two probabilities may differ by."""
    if not is_real(margin, 0, 1):
        raise ValueError(f"margin must be from 0 to 1, got {margin!r}")
    return margin


def blocks(columns: Tensor, sizes: Sequence[int] | int | None) -> Sequence[Tensor]:
    """Split columns into those of each output."""
    return columns.split(columns.shape[1] if sizes is None else sizes, dim=1)


def log(probabilities: Tensor) -> Tensor:
    """Logarithms that are finite, with finite gradients.

    The probability of a class may be 0. Below the smallest normal number, the gradient 1 / p would
    overflow; there it is 0. Not by ``clamp_min``: whether its gradient is 0 at the bound itself
    depends on torch's version.
    """
    tiny = torch.finfo(probabilities.dtype).tiny
    return torch.where(probabilities < tiny, tiny, probabilities).log()


def log_odds(probabilities: Tensor) -> Tensor:
    """Logarithms of the odds of labels, (q, n_labels)."""
    absent, there = log(probabilities).unflatten(1, (-1, 2)).unbind(dim=2)
    return there - absent


def present(truth: Tensor) -> Tensor:
    """Which labels a row has, bool, (q, n_labels)."""
    return truth[:, 1::2].bool()


def log_one_plus(exponents: Tensor) -> Tensor:
    """Logarithms of 1 and the exponentials' sums over rows, (q, 1)."""
    return pad(exponents, (1, 0)).logsumexp(dim=1, keepdim=True)


class WeightedLoss(nn.Module):
    """The mean of a loss over rows of different weights, and over outputs.

    `loss` is a class of losses that take ``reduction='none'``, as torch's do. If it is to be
    `balanced`, the mean over the outputs is geometric: a tenth less of any output's loss counts
    alike, be it large or small, so noise in some outputs hardly changes what is learned of others.
    """

    def __init__(self, loss: Callable[..., nn.Module], balanced: bool = False):
        super().__init__()
        self.loss: Any = loss(reduction="none")
        self.balanced = balanced

    def forward(self, prediction: Tensor, truth: Tensor, weights: Tensor | None = None) -> Tensor:
        losses = self.loss(prediction, truth).reshape(len(prediction), -1)
        if weights is not None:
            losses = weights[:, None] * losses
        if not self.balanced:
            return losses.mean()
        each = losses.mean(dim=0) / NEGLIGIBLE_LOSS
        return NEGLIGIBLE_LOSS * each.log1p().mean().expm1()
