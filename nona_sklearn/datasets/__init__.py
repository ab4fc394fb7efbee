"""A real table that comes with the package, and synthetic targets on the plane."""

from ._ames import load_ames
from ._plane import TARGETS, make_plane_regression

__all__ = ["TARGETS", "load_ames", "make_plane_regression"]
