"""What a version is worth: held-out questions answered with it, scored once, recorded."""
