"""The size of a playbook's batches: the paper's plateau, and keeping up with arrivals; pure."""
