"""What topics hold and ought to hold: layout, rights, ledger, dead letters, archives, erasure; pure."""
