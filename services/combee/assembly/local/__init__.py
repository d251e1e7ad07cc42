"""``combee up``: processes on one machine, and their needs."""
