"""Constraints of the parameters that several estimators have."""

from __future__ import annotations

from numbers import Integral, Real

from sklearn.utils._param_validation import Interval, StrOptions

#: Constraints of the parameters that classifiers have beside those of regressors.
CLASS_CONSTRAINTS: dict = {
    "loss": [StrOptions({"log_loss", "as_softmax"})],
    "margin": [Interval(Real, 0, 1, closed="both")],
    "max_accumulation": [Interval(Integral, 1, None, closed="left")],
    "class_weight": [StrOptions({"balanced"}), dict, list, None],
}
