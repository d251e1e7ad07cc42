"""The pages, one module each, and the parts of a playbook's page."""
