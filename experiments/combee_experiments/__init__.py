"""The paper's experiments, re-run: on the stand-in (simulated) or on a real model."""
