"""From waiting reflections to a planned batch: window, shuffle, scan tree, manifest."""
