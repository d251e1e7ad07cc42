"""One batch of 40 to 10,000 reflections."""
