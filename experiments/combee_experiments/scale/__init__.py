"""One batch of 4 to 10,000 reflections."""
