"""Updates become playbook versions (the only writer)."""
