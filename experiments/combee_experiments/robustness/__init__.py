"""``robustness``: what holds when the stand-in counts differently, or fails."""
