"""Traces become reflections."""
