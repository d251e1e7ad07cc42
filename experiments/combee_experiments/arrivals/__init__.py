"""Batch-size policies under steady arrivals, from a few reflections an hour to thousands."""
