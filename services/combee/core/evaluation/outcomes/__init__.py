"""Outcomes: folded into statistics per version and entry, and told with their intervals."""
