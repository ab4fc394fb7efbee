"""Neighbour attention: weights from similarities, predictions from weights.

Each rung calls the one before: :func:`neighbor_weights` (a masked softmax),
:func:`neighbor_attention` (plain NONA, the mean by such weights or by others), :class:`NONAHead`
(the trainable layer, with its own similarity and weights), :class:`ClassHead` (the same for
classes) and :class:`AverageHead` (several of them on one bank). In training, a head that is plain
NONA is evaluated by the fused version, ``functional.L2Attention``.
"""

from .functional import neighbor_attention, neighbor_weights
from .head import AverageHead, ClassHead, NONAHead

__all__ = [
    "AverageHead",
    "ClassHead",
    "NONAHead",
    "neighbor_attention",
    "neighbor_weights",
]
