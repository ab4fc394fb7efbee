"""Weightings: how a similarity becomes a weight.

Neighbour j of a query has the weight ``w_j ~ m_j phi(s_j)``: `s` is its similarity over the
temperature, `phi` the weighting, and `m` the product of the neighbour's sample weight and
SoftStep's step, 0 for an excluded pair. Most weightings are a function of each similarity, over
the sum; :class:`Entmax`, :class:`Preconditioned` and :class:`Triangular` depend on all of a
query's nearest neighbours.
"""

import copy
from collections.abc import Callable
from functools import partial

from .._utils.validation import check_choice
from .base import (
    Gaussian,
    Sigmoid,
    Softmax,
    Softpick,
    Softplus,
    Uniform,
    Weighting,
    check_weighting,
)
from .sparse import Entmax, Preconditioned, SparseSoftmax, Triangular

__all__ = [
    "WEIGHTINGS",
    "Entmax",
    "Gaussian",
    "Preconditioned",
    "Sigmoid",
    "Softmax",
    "Softpick",
    "Softplus",
    "SparseSoftmax",
    "Triangular",
    "Uniform",
    "Weighting",
    "make_weighting",
]

#: What makes each weighting, by the name that the parameter `weighting` accepts.
WEIGHTINGS: dict[str, Callable[[], Weighting]] = {
    "softmax": Softmax,
    "uniform": Uniform,
    "gaussian": Gaussian,
    "sigmoid": Sigmoid,
    "softplus": Softplus,
    "softpick": Softpick,
    "sparse_softmax": SparseSoftmax,
    "sparsemax": partial(Entmax, 2.0),
    "entmax": partial(Entmax, learn_alpha=True),
    "preconditioned": Preconditioned,
    "triangular": Triangular,
}


def make_weighting(weighting: str | Weighting) -> Weighting:
    """Make a weighting by its name, or copy one, and check that it gives weights.

    Parameters
    ----------
    weighting : str or Weighting
        A name in ``WEIGHTINGS``, or what is to be copied.

    Returns
    -------
    Weighting

    Raises
    ------
    ValueError, TypeError
        If the name is unknown, or its entry makes no weighting; if the results are no weights of
        the admitted neighbours, or depend on others where they should not.

    Examples
    --------
    >>> from nona_sklearn.weighting import make_weighting
    >>> make_weighting("sparse_softmax")
    SparseSoftmax(n_neighbors=16)
    """
    if isinstance(weighting, Weighting):
        made = copy.deepcopy(weighting)
    else:
        check_choice("weighting", weighting, WEIGHTINGS)
        entry, needed = WEIGHTINGS[weighting], f"WEIGHTINGS[{weighting!r}] must make a Weighting"
        try:
            made = copy.deepcopy(entry) if isinstance(entry, Weighting) else entry()
        except TypeError as error:
            raise TypeError(f"{needed} without arguments") from error
        if not isinstance(made, Weighting):
            raise TypeError(f"{needed}, got {made!r:.100}")
    check_weighting(made, weighting)
    return made
