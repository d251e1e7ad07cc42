"""What follows from a record of publish: pure functions of what its partition knows and of what was read for them."""
