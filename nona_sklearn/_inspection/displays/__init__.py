"""Displays. Only this package imports matplotlib, and only inside functions."""
