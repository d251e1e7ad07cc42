"""The law of context overload, and material for it."""
