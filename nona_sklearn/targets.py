"""Targets: how an estimator checks, averages, learns and decodes `y`."""

from ._data.targets import RegressionTargets

__all__ = ["RegressionTargets"]
