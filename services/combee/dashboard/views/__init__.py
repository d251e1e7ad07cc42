"""What the pages show, worked out from values: pure, so that it is tested without a browser."""
