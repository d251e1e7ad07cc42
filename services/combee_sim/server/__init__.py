"""The stand-in model as an OpenAI-compatible server."""
