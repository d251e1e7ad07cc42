"""Access control and limits of requests."""
