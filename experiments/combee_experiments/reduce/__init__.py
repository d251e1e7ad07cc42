"""Proposals combined by topic, one call for each part, against one combine of all of them."""
