"""What a playbook becomes: operations, versions, what entries rest on, what they cost."""
