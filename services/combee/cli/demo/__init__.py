"""``combee demo``: learning end to end, simulated."""
