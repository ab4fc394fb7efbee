"""The estimator inside a model, pictures, and search spaces."""
# Types of what a user calls are in the docstrings alone, as in scikit-learn.
