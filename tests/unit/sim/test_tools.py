"""The stand-in uses the tools that it is offered, once for each question."""

import json
from collections.abc import Mapping
from typing import Any

from combee_sim.roles.respond import respond
from combee_sim.server.wire import chunks, completion
from support.rows import each_row

TOOL = {
    "type": "function",
    "function": {
        "name": "paid",
        "parameters": {
            "type": "object",
            "properties": {"order": {"type": "integer"}, "why": {"type": "string"}},
            "required": ["order"],
        },
    },
}
ASKED = [{"role": "user", "content": "Refund order 7, please."}]
ANSWERED = [
    *ASKED,
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]},
    {"role": "tool", "tool_call_id": "c", "content": "120"},
]


def reply(body: Mapping[str, Any]) -> dict[str, Any]:
    whole = completion(respond(body, 0), "ok", cached_tokens=0, created_s=0, huge_bytes=1)
    choice: dict[str, Any] = whole["choices"][0]
    return choice


def test_a_tool_is_called_with_what_the_question_has() -> None:
    choice = reply({"messages": ASKED, "tools": [TOOL]})
    (call,) = choice["message"]["tool_calls"]

    assert choice["finish_reason"] == "tool_calls"
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("paid", {"order": 7})
    assert choice["message"]["content"] is None


def test_after_its_result_the_stand_in_answers_and_a_new_question_has_a_call_of_its_own() -> None:
    assert reply({"messages": ANSWERED, "tools": [TOOL]})["finish_reason"] == "stop"
    assert reply({"messages": [*ANSWERED, *ASKED], "tools": [TOOL]})["finish_reason"] == "tool_calls"


@each_row("more", [{}, {"tools": []}, {"tools": [TOOL], "tool_choice": "none"}])
def test_without_a_tool_to_call_it_answers(more: dict[str, Any]) -> None:
    assert reply({"messages": ASKED, **more})["finish_reason"] == "stop"


def test_the_tool_that_is_demanded_is_called() -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": {}}}
    chosen = {"type": "function", "function": {"name": "other"}}
    (call,) = reply({"messages": ASKED, "tools": [TOOL, other], "tool_choice": chosen})["message"][
        "tool_calls"
    ]

    assert (call["function"]["name"], call["function"]["arguments"]) == ("other", "{}")


def test_arguments_fit_their_types() -> None:
    kinds = {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "items": {"type": "array"},
        "thing": {"type": "object"},
        "one": {"enum": ["a", "b"]},
    }
    function = {"name": "f", "parameters": {"type": "object", "properties": kinds}}
    body = {
        "messages": [{"role": "user", "content": "none"}],
        "tools": [{"type": "function", "function": function}],
    }
    (call,) = reply(body)["message"]["tool_calls"]

    assert json.loads(call["function"]["arguments"]) == {
        "text": "none",
        "number": 0.0,
        "flag": True,
        "items": [],
        "thing": {},
        "one": "a",
    }


def test_a_streamed_call_comes_in_pieces_that_make_the_whole() -> None:
    whole = completion(
        respond({"messages": ASKED, "tools": [TOOL]}, 0), "ok", cached_tokens=0, created_s=0, huge_bytes=1
    )
    events = [
        json.loads(event[6:]) for event in chunks(whole, with_usage=False) if event != b"data: [DONE]\n\n"
    ]
    deltas = [event["choices"][0]["delta"] for event in events]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]

    assert "".join(call["function"]["arguments"] for call in calls) == '{"order": 7}'
    assert calls[0]["function"]["name"] == "paid"
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
