"""Text: forms for comparing and for showing, lengths, secrets, prompts, similarity; pure."""
