"""Archives: which records belong to a consistent cut, and where each stands when they are read back; pure."""
