"""Batches of 4 to 8 reflections, where a tree may not be worth its calls."""
