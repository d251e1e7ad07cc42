"""Everything of ``combee up``: processes on one machine, and what they need."""
