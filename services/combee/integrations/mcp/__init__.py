"""Playbooks for coding assistants over the Model Context Protocol (extra ``mcp``): ``combee mcp``."""
