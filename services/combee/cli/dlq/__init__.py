"""``combee dlq``: dead letters."""
