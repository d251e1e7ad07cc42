"""The language model behind any OpenAI-compatible server."""

from combee.adapters.openai.model import OpenAIModel as OpenAIModel
from combee.adapters.openai.names import resolve_model as resolve_model
