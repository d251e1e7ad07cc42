"""One third-party library per file, behind the ports."""
