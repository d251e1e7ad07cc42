"""Dead letters: when they stop a service, and when one may be sent again."""
