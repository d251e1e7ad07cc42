"""Batch sizes are published."""
