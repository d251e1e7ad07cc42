"""``combee top``: a live view in a terminal."""
