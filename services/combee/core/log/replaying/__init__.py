"""What would have been learned otherwise: ranges, variants, and what came of them; pure."""
