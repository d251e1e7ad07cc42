"""How large a playbook's batches are: the paper's plateau, and keeping up with arrivals; pure."""
