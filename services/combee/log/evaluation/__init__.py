"""Evaluation of versions: held-out questions are answered with a version, scored once, and recorded."""
