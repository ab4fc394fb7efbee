"""The estimator inside a model, displays, report, explorer, counterfactuals and searches."""
# Types of what a user calls are in the docstrings alone, as in scikit-learn.
