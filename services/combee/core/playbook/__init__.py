"""The playbook: operations, versions, evidence of entries, and costs."""
