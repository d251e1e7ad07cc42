"""The language model behind any OpenAI-compatible server."""
