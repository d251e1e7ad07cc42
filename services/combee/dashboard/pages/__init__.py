"""The pages, a module each, and the parts of a playbook's page."""
