"""The control service: it publishes batch sizes."""
