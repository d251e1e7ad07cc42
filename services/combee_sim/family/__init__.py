"""The simulated task family and its lessons."""
