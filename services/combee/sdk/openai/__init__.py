"""Wrapped clients of OpenAI's library, whose calls are shown the playbook and become traces."""

from combee.sdk.openai.wrapping import wrap_openai

__all__ = ["wrap_openai"]
