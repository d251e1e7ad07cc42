"""Text: its forms for comparing and for showing, lengths, secrets, prompts, how alike two are; pure."""
