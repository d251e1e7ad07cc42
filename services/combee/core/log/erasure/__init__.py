"""Erasure: which records name a person or belong to a run, and what is left of them; pure."""
