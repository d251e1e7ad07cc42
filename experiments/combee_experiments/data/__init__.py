"""What experiments learn from."""
