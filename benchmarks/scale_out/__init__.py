"""A thousand playbooks on a real cluster: what it needs, what breaks first, and a simulation in virtual time."""
