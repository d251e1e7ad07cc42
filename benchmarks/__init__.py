"""Benchmarks: never tests. Every figure in the docs comes from here."""
