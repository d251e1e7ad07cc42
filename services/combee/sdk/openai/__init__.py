"""Clients of OpenAI's library that are shown the playbook and whose calls become traces."""

from combee.sdk.openai.wrapping import wrap_openai

__all__ = ["wrap_openai"]
