"""The estimator inside a model, displays, report, explorer, counterfactuals and searches."""
