"""``combee learn``: lines in, playbook out."""
