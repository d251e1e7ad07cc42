"""Contents of the pages, computed from values; pure, so that they are tested without a browser."""
