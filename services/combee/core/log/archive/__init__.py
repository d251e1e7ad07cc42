"""Archives: the records of a consistent cut, and their places after a restore; pure."""
