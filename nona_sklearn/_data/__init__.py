"""`X`, `y`, weights and names as plain arrays."""
