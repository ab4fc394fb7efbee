"""Networks, and their state as plain data."""
