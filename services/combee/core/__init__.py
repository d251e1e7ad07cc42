"""Pure decisions: no asyncio, clock, environment, I/O or logging."""
