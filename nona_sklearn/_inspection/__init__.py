"""The estimator inside a model, displays, report, explorer and counterfactuals."""
