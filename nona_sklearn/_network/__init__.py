"""The network that is trained, and its state as plain data."""
