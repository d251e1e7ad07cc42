"""``combee doctor``: health checks with remedies."""
