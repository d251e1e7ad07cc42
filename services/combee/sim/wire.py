"""The bodies of the OpenAI-compatible API: completions, models, errors, and the broken ones."""

import json
from typing import Any

from combee.sim.respond import MODEL, Simulated
from combee.sim.standin import Outcome

NO_JSON = "Well, about that: [[ the curator's notes are not } in any form a parser would like ::"
_FILLER = "and so on "


def completion(said: Simulated, fate: Outcome, *, created_s: int, huge_bytes: int) -> dict[str, Any]:
    """Return a chat completion, spoilt as ``fate`` demands."""
    content, finish = said.content, "stop"
    match fate:
        case "truncated":
            content, finish = content[: len(content) // 2], "length"
        case "malformed":
            content = NO_JSON
        case "huge":
            content = _FILLER * (huge_bytes // len(_FILLER) + 1)
        case "empty":
            content = ""
    usage = {
        "prompt_tokens": said.tokens_in,
        "completion_tokens": said.tokens_out,
        "total_tokens": said.tokens_in + said.tokens_out,
    }
    message = {"role": "assistant", "content": content}
    return {
        "id": f"simulated-{said.prompt_hash}",
        "object": "chat.completion",
        "created": created_s,
        "model": MODEL,
        "system_fingerprint": "simulated",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage,
    }


def models() -> dict[str, Any]:
    """Return the list of models: one, and its name says what it is."""
    return {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "simulated"}],
    }


def error(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """Return an error body as OpenAI clients read it."""
    return {"error": {"message": f"simulated: {message}", "type": kind, "param": None, "code": code}}


def as_bytes(body: dict[str, Any]) -> bytes:
    """Return a body as JSON."""
    return json.dumps(body, ensure_ascii=False).encode()
