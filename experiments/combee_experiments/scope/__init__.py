"""Calls that read the entries nearest to their items instead of the whole playbook."""
