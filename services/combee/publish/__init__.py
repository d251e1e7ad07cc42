"""The publish service: updates and commands become playbook versions."""
