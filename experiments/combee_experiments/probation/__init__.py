"""``probation``: what showing agents only what several reflections support costs, and what it keeps from them."""
