"""Shared by verbs: printing, options, opening the log, sending commands."""
