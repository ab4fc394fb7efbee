"""Synthetic targets on the plane, in the manner of the SoftStep paper's Figure 3.

The paper draws its targets without giving formulas; those here are ours, chosen so that plain
5-NN on 800 rows reaches a test R² of about 0.86 (spiral) and 0.90 (checkerboard).
"""

import numpy as np
from sklearn.utils import check_random_state

from .._utils.validation import check_choice, check_integer, is_real


def spiral(X):
    """A wave along two turning arms, ``sin(angle + 4 pi radius)``."""
    return np.sin(np.arctan2(X[:, 1], X[:, 0]) + 4 * np.pi * np.hypot(X[:, 0], X[:, 1]))


def checkerboard(X):
    """Four by four rounded squares, ``sin(2 pi x1) sin(2 pi x2)``."""
    return np.sin(2 * np.pi * X[:, 0]) * np.sin(2 * np.pi * X[:, 1])


def rings(X):
    """Concentric waves, ``cos(4 pi radius)``."""
    return np.cos(4 * np.pi * np.hypot(X[:, 0], X[:, 1]))


def stairs(X):
    """Six flat levels along the diagonal: not continuous."""
    return np.floor(1.5 * (X[:, 0] + X[:, 1]))


#: Every target, a function of points in [-1, 1]², by its name.
TARGETS = {f.__name__: f for f in (spiral, checkerboard, rings, stairs)}


def make_plane_regression(target="spiral", n_samples=1000, *, noise=0.1, random_state=None):
    """Sample one of the synthetic targets at uniform points of the square [-1, 1]².

    Parameters
    ----------
    target : {'spiral', 'checkerboard', 'rings', 'stairs'}, default='spiral'
        Which target.
    n_samples : int, default=1000
        Number of points.
    noise : float, default=0.1
        Standard deviation of the Gaussian noise on the target.
    random_state : int, RandomState instance or None, default=None
        Seed of the points and of the noise.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        Points.
    y : ndarray of shape (n_samples,)
        Noisy targets.

    Examples
    --------
    >>> from nona_sklearn.datasets import make_plane_regression
    >>> X, y = make_plane_regression("rings", 50, random_state=0)
    >>> X.shape, y.shape
    ((50, 2), (50,))
    """
    check_choice("target", target, TARGETS)
    n_samples = check_integer("n_samples", n_samples)
    if not is_real(noise, 0, np.inf):
        raise ValueError(f"noise must be a number of at least 0, got {noise!r}")
    rng = check_random_state(random_state)
    X = rng.uniform(-1, 1, size=(n_samples, 2))
    return X, TARGETS[target](X) + noise * rng.normal(size=n_samples)
