"""The ways to learn that are compared, and what they run on."""
