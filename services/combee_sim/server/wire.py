"""The bodies of the OpenAI-compatible API: completions, whole and streamed, models, errors, and faulty ones."""

import json
from collections.abc import Iterator
from typing import Any

from combee_sim.embeddings import EMBEDDING
from combee_sim.roles.respond import MODEL, Simulated
from combee_sim.server.standin import Outcome

NO_JSON = "Well, about that: [[ the curator's notes are not } in any form a parser would like ::"
_FILLER = "and so on "
_PIECE, _PIECES = 16, 500
"""Characters per piece of a streamed reply, and maximum number of pieces."""


def completion(
    answer: Simulated, fate: Outcome, *, cached_tokens: int, created_s: int, huge_bytes: int
) -> dict[str, Any]:
    """Return a chat completion, damaged according to ``fate``."""
    content, finish = answer.content, "stop"
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
        "prompt_tokens": answer.tokens_in,
        "completion_tokens": answer.tokens_out,
        "total_tokens": answer.tokens_in + answer.tokens_out,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if answer.tool_call is not None and fate == "ok":
        function = {"name": answer.tool_call.name, "arguments": answer.tool_call.arguments}
        call_id = f"call-{answer.prompt_hash[:16]}"
        message |= {
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        }
        finish = "tool_calls"
    return {
        "id": f"simulated-{answer.prompt_hash}",
        "object": "chat.completion",
        "created": created_s,
        "model": MODEL,
        "system_fingerprint": "simulated",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage,
    }


def chunks(whole: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Yield a completion as server-sent events: its text in pieces, and finally the usage if requested."""
    (choice,) = whole["choices"]
    text = choice["message"]["content"] or ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(text)]
    for index, call in enumerate(choice["message"].get("tool_calls", ())):
        begun = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        for piece in _pieces(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"], "logprobs": None})
    chunks: list[dict[str, Any]] = [{"choices": [chunk]} for chunk in choices]
    if with_usage:
        chunks = [chunk | {"usage": None} for chunk in chunks] + [{"choices": [], "usage": whole["usage"]}]
    head = {name: whole[name] for name in ("id", "created", "model", "system_fingerprint")}
    for chunk in chunks:
        yield _event(as_bytes({**head, "object": "chat.completion.chunk", **chunk}))
    yield _event(b"[DONE]")


def _pieces(text: str) -> Iterator[str]:
    size = max(_PIECE, len(text) // _PIECES)
    return (text[at : at + size] for at in range(0, len(text), size))


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def models() -> dict[str, Any]:
    """Return the list of models; their names say what they are."""
    return {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": 0, "owned_by": "simulated"}
            for name in (MODEL, EMBEDDING)
        ],
    }


def error(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """Return an error body as OpenAI clients read it."""
    return {"error": {"message": f"simulated: {message}", "type": kind, "param": None, "code": code}}


def as_bytes(body: dict[str, Any]) -> bytes:
    """Return a body as JSON."""
    return json.dumps(body, ensure_ascii=False).encode()
