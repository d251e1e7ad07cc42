"""Replays: ranges, variants, and their results; pure."""
