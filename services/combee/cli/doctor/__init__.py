"""``combee doctor``: what is wrong, and the remedy."""
