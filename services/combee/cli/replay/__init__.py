"""``combee replay``: the same input again."""
