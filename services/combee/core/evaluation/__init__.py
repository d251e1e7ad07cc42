"""What a playbook is worth: held-out questions, scorers, intervals; pure."""
