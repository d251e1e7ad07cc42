"""How any model is asked: within limits, again after a failure, and what a reply of doubtful shape is worth."""
