"""``combee top``: the live picture in a terminal."""
