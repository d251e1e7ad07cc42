"""``combee playbook``: show, compare, edit and label playbooks."""
