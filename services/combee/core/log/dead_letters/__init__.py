"""Dead letters: when to stop for them, and when to send one again."""
