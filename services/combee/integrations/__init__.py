"""Combee in agents' libraries: one module per ecosystem, each behind an extra of the same name.

The rest of Combee imports nothing from here, except the verb that runs a part (``combee mcp``). An adapter uses its
library's own extension point. Adapters reach a deployment through the SDK or the gateway; adapters that learn in the
library's process use the same core.
"""
