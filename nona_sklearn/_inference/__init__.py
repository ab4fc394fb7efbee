"""From neighbours to predictions, distributions and explanations."""
