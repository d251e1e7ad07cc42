"""``combee demo``: the main job, simulated."""
