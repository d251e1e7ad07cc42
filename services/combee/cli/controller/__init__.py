"""``combee controller``: batch sizes and why."""
