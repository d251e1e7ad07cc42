"""The law of context overload, and how it was fitted."""
