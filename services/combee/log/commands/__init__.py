"""What people may ask of a deployment, the same on every face: decided, sent, and awaited."""
