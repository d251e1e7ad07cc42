"""What a version rests on: evidence, branches, and its content without what is revoked or rejected; pure."""
