"""The estimators: their parameters, fit, and the methods of a fitted one."""
