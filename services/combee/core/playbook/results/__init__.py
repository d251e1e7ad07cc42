"""What the result of a batch is worth, before it makes a version: coverage, guards, echoes, clusters; pure."""
