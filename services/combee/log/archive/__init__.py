"""Archives: topics written to one file, and read back into an empty prefix."""
