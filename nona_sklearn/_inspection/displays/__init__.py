"""Pictures: the only package that imports matplotlib, and only inside functions."""
