"""The controller's choice against a sweep of fixed batch sizes."""
