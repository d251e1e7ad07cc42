"""Erasure: which records name a person or belong to a run, and their remaining content; pure."""
