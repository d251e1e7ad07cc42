"""``combee replay``: learn again from the same input."""
