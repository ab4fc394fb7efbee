"""Access to the estimator inside a model, displays, report, explorer and counterfactuals."""
