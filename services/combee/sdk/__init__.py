"""What agents import."""
