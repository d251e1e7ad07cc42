"""Naive batch sizes against Combee."""
