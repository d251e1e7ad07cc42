import json
import time
from dataclasses import replace

import pytest

from combee.adapters.asking.errors import CallFailedError
from combee.adapters.asking.replies import (
    REPAIRABLE_CHARS,
    Answer,
    UnusableError,
    read_reply,
    read_small_reply,
)
from combee.adapters.openai.wire import read_answer
from combee_schemas.base import Usage
from combee_schemas.model import Prompt
from support.fake_openai import completion
from support.rows import each_row

SCHEMA = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "items": {"type": "array"}, "extra": True},
    "required": ["why", "items"],
}
EXAMPLE = '{"why": "...", "items": [{"n": 1}]}'
SYSTEM = f"You are the curator. Read what follows and answer with one JSON object of this shape: {EXAMPLE}"
PROMPT = Prompt(
    system=SYSTEM, user='<data>\n{"why": "data", "items": []}\n</data>', reply_name="r", reply_schema=SCHEMA
)
GOOD = {"why": "because", "items": [{"n": 1}, {"n": 2}]}
TEXT = json.dumps(GOOD)


def answer(text: str, finish_reason: str = "stop") -> Answer:
    return Answer(text=text, finish_reason=finish_reason, usage=Usage())


@each_row(
    "text",
    [
        TEXT,
        f"\n  {TEXT}\n",
        f"```json\n{TEXT}\n```",
        f"Sure! Here you are:\n```\n{TEXT}\n```\nAnything else?",
        f"I looked at {{braces}} first. {TEXT} Done.",
        f"[{TEXT}]",
        f"<think>maybe {{'why': 1}} or {EXAMPLE}</think>{TEXT}",
        f'A draft: {{"why": "draft", "items": []}}. Final: {TEXT}',
        f"{SYSTEM}\n{PROMPT.user}\n{TEXT}",
        "{'why': 'because', 'items': [{'n': 1}, {'n': 2}]}",
        '{"why": "because", "items": [{"n": 1}, {"n": 2},],}',
        '{why: "because", "items": [{"n": 1} {"n": 2}]}',
        '// the answer\n{"why": "because", /* two */ "items": [{"n": 1}, {"n": 2}]}',
    ],
)
def test_a_weak_models_reply_is_helped(text: str) -> None:
    assert read_reply(answer(text), PROMPT) == GOOD


@each_row("text", [TEXT, f"\n {TEXT}\n", f"<think>maybe</think>{TEXT}", '{"why": "\\ud800", "items": []}'])
def test_a_small_reply_that_is_in_order_is_read_as_any_other(text: str) -> None:
    assert read_small_reply(answer(text), PROMPT) == read_reply(answer(text), PROMPT)


@each_row("text", ["", f"Here: {TEXT}", TEXT[:-1], '{"why": "no items"}', TEXT + " " * REPAIRABLE_CHARS])
def test_what_is_large_or_may_need_repair_is_not_read_at_once(text: str) -> None:
    assert read_small_reply(answer(text), PROMPT) is None


def test_without_a_schema_nothing_is_read_at_once() -> None:
    assert read_small_reply(answer(TEXT), replace(PROMPT, reply_schema={})) is None


def test_an_optional_key_may_be_missing_and_no_other() -> None:
    lenient = replace(PROMPT, optional=frozenset({"why"}))
    assert read_reply(answer('{"items": []}'), lenient) == {"items": []}
    with pytest.raises(UnusableError, match="lacked items"):
        read_reply(answer('{"why": "x"}'), lenient)


@each_row(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("<think>nothing</think>", "empty"),
        ("I cannot help with that.", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('"just a string"', "no JSON object"),
        ("null", "no JSON object"),
        ('{"why": "x"}', "lacked items"),
        ("{}", "lacked why, items"),
        ('{"why": "x", "items": {"n": 1}}', "must be lists: items"),
        ('{"why": "x", "items": null}', "must be lists: items"),
        ('{"why": "x", "items": [{"n": 1}', "not closed"),
        ('```json\n{"why": "x", "items": [{"n": 1}, {"n"', "not closed"),
        ('{"outer": {"why": "x", "items": []}, "more": ["', "not closed"),
        (SYSTEM, "no JSON object"),
        (SYSTEM[:-1] + " }", "repeated the instructions"),
        ('{"why": NaN, "items": []', "not closed"),
        ('{"why": 1e999, "items": []}', "beyond what JSON allows"),
        ('{"a":' * 60_000 + "1" + "}" * 60_000, "not valid JSON"),
        ('{"why": "' + "x" * 100_000, "not closed"),
        ("x" * 100_000, "no JSON object"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason_for_the_model(text: str, why: str) -> None:
    with pytest.raises(UnusableError, match=why):
        read_reply(answer(text), PROMPT)


@each_row("reason", ["length", "max_tokens", "content_filter"])
def test_a_cut_off_or_withheld_reply_is_never_adopted_even_if_it_parses(reason: str) -> None:
    with pytest.raises(UnusableError):
        read_reply(answer(TEXT, reason), PROMPT)
    with pytest.raises(UnusableError):
        read_small_reply(answer(TEXT, reason), PROMPT)


@each_row(
    "text",
    [
        "{" * 60_000 + "}" * 60_000,
        ("{" * 30 + "x" * 1500 + "}" * 30) * 66,
        '{"a":' + "(" * 60_000 + ")" * 60_000 + "}",
        '{"a": "' + 'x" y ' * 200_000 + "}",
        '{"a":' + "[{" * 10_000 + "}]" * 10_000 + "}",
        "{x" + '[("' * 300 + "y" * 60_000 + '")]' * 300 + "}",
        "{x" + "{{{{y" * 10_000 + "}}}}" * 10_000 + "}",
        "{x," + "{{y}}" * 9_000 + "}",
        ("{" * 30 + "x" * 1500 + "}" * 30) * 38,
        '{"": ' * 200_000 + "}" * 200_000,
    ],
)
def test_a_reply_made_to_be_slow_to_repair_costs_little_time(text: str) -> None:
    started_s = time.process_time()
    with pytest.raises(UnusableError):
        read_reply(answer(text), PROMPT)
    assert time.process_time() - started_s < 2


def test_a_lone_surrogate_does_not_reach_the_codec() -> None:
    body = read_reply(answer('{"why": "\\ud800", "items": []}'), PROMPT)
    assert body["why"] == "?"


def test_without_a_schema_the_text_is_the_reply() -> None:
    free = Prompt(system="s", user="u", reply_name="r")
    assert read_reply(answer("  some {text} \n"), free) == {"text": "some {text}"}


def read(content: bytes, max_bytes: int = 10_000) -> Answer:
    messages = [{"role": "user", "content": "x" * 400}]
    return read_answer(content, max_bytes=max_bytes, messages=messages, seconds=2.0, shown=str)


def test_usage_is_the_servers_count() -> None:
    assert read(completion("hello", usage=(11, 5))).usage == Usage(
        calls=1, tokens_in=11, tokens_out=5, seconds=2
    )


@each_row("usage", [None, "free", {"prompt_tokens": "many", "completion_tokens": -1}])
def test_usage_is_estimated_where_the_server_does_not_count(usage: object) -> None:
    assert read(completion("x" * 40, usage=usage)).usage == Usage(
        calls=1, tokens_in=100, tokens_out=10, seconds=2
    )


@each_row(
    "content",
    [
        b"{}",
        b"[]",
        b'{"choices": null}',
        b'{"choices": []}',
        b'{"choices": "x"}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": null}}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
    ],
)
def test_an_answer_of_any_other_shape_is_an_empty_one(content: bytes) -> None:
    assert read(content).text == ""


def test_an_answer_in_parts_is_joined() -> None:
    assert read(completion([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).text == "ab"


def test_a_body_above_the_cap_is_not_even_parsed() -> None:
    assert read(completion("x" * 20_000)).oversized


@each_row(
    ("content", "permanent"),
    [
        (completion("x")[:-20], False),
        (b"[" * 5000, False),
        (b"<html>gateway</html>", True),
        (b'{"error": {"code": 503, "message": "overloaded"}}', False),
        (b'{"error": {"code": 401, "message": "key"}}', True),
        (b'{"error": {"message": "something"}}', False),
    ],
)
def test_a_failure_in_a_200_is_a_failed_call(content: bytes, permanent: bool) -> None:  # noqa: FBT001 - a column
    with pytest.raises(CallFailedError) as raised:
        read(content)
    assert raised.value.permanent is permanent
