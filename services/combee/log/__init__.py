"""Operators' work on a log: history, evidence, commands, inspection, evaluation, archives."""
