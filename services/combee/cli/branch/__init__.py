"""``combee branch``."""
