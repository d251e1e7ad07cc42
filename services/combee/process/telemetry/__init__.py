"""Health, metrics and logs of a process."""
