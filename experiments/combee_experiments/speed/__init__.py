"""Whole iterations: sequential, naive, Combee."""
