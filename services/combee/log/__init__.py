"""What people ask of a log: history, evidence, commands, inspection, evaluation, archives."""
