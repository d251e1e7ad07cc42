"""What people may ask of a deployment: built, checked, sent, and awaited."""
