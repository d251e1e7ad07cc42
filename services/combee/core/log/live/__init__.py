"""The live picture: the current activity of a deployment, folded from its topics."""
