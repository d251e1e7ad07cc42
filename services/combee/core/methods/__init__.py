"""How prompts are written and replies are read."""
