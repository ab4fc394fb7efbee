"""Estimators inside other models, displays, and what to search for."""
