"""The reflect service: traces become reflections."""
