"""The value of a playbook: held-out questions, scorers, intervals; pure."""
