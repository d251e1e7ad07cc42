"""Reflections become batches (the only Faust process)."""
