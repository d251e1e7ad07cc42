"""Synchronous against overlapping iterations."""
