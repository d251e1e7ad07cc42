"""Scoring answers and counting lessons."""
