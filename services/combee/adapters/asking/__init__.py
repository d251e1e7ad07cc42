"""Calls of any model: limits, retries, and checks of malformed replies."""
