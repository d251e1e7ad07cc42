"""Copies of a reflection in batches of 4 to 40, where they may be as many as groups."""
