"""``combee learn``: learn a playbook from runs."""
