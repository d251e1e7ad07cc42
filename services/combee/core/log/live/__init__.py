"""The live picture: what a deployment is doing right now, folded from its topics."""
