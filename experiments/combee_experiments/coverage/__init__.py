"""Coverage that is checked: lessons kept, whatever the model reports about itself."""
