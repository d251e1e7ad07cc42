"""Outcomes: statistics per version and entry, and reports with intervals."""
