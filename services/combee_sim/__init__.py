"""The stand-in model and the simulated fleet: everything here is a simulation."""
