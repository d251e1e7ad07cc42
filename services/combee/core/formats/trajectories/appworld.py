"""AppWorld, as ACE's runner leaves it: ``experiments/outputs/NAME/tasks/TASK/`` with logs and an evaluation.

``logs/lm_calls.jsonl`` has the calls of generator, reflector and curator (``log_lm_calls``),
``logs/environment_io.md`` the code that ran and what came of it, ``logs/loggger.log`` the task,
``evaluation/report.md`` the tests.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from combee.core.formats.intake import LineError
from combee.core.formats.trajectories.trajectory import (
    Files,
    Trajectory,
    TrajectoryFormat,
    json_lines,
    text_of,
    verdict_text,
)
from combee.core.text.condensing import Step
from combee.core.text.shortening import cut

CALLS, CODE, LOG, REPORT = (
    *("logs/lm_calls.jsonl", "logs/environment_io.md", "logs/loggger.log"),
    "evaluation/report.md",
)
TASK = "\nTask: "
INTERACTION = (
    re.compile(r"^#+ (?:Execution|Environment Interaction) \d+\n-+\n```python\n", re.MULTILINE),
    re.compile(r"\n```\n+```\n"),
    re.compile(r"\n```[^\S\n]*$", re.MULTILINE),
)
"""Patterns of the text before the code, between code and output, and after the output."""
INSTRUCTION = "Instruction: "
EMPTY_LINE = re.compile(r"\n[^\S\n]*(?:│[^\S\n]*+│?)?\n")
"""Matches an empty line, also inside a drawn box."""
COUNT = re.compile(r"Num (Passed|Failed) Tests\s*:\s*(\d+)")
FAILS = re.compile(r"^─+ Fails ─+\s*$", re.MULTILINE)
REPORT_BYTES = 6 * 1024
LOG_CHARS = 20_000
"""Maximum characters of a log that are searched; the task is at its beginning."""

Messages = Sequence[Mapping[str, Any]]


def read_task(files: Files, mark: str) -> Trajectory | None:
    """Read the files of one task; of several attempts, the last one."""
    calls = [call for call in map(_messages, json_lines(files.get(CALLS, ""))) if _asks_generator(call)]
    interactions = list(_interactions(files.get(CODE, "")))
    if calls:
        task, steps = _conversation(calls[-1])
        # No call was told the output of the last code.
        steps += tuple(Step("environment", output) for _, output in interactions[-1:])
    else:
        task, steps = _logged_task(files.get(LOG, "")), tuple(_executions(interactions))
    if not steps:
        raise LineError(f"neither {CALLS} nor {CODE} tells of a run")
    passed, failed = _counts(files.get(REPORT, ""))
    known = passed + failed > 0
    return Trajectory(
        task=task or mark,
        steps=steps,
        answer=next((step.text for step in reversed(steps) if step.who == "assistant"), ""),
        feedback=_feedback(files.get(REPORT, ""), passed, failed) if known else "",
        success=failed == 0 if known else None,
        score={"tests": passed / (passed + failed)} if known else {},
    )


def _messages(call: Mapping[str, Any]) -> Messages:
    """Return a call's conversation with its answer."""
    asked = (call.get("input") or {}).get("messages") or []
    choices = (call.get("output") or {}).get("choices") or [{}]
    return [*asked, choices[0].get("message") or {}]


def _asks_generator(messages: Messages) -> bool:
    """Return whether the agent was asked: reflector and curator get one message with everything in it."""
    return len(messages) > 2 and any(TASK in text_of(message.get("content")) for message in messages)  # noqa: PLR2004


def _conversation(messages: Messages) -> tuple[str, tuple[Step, ...]]:
    """Return the task and the messages after it; the instructions and the playbook come before."""
    texts = [text_of(message.get("content")) for message in messages]
    # Examples in the instructions are tasks as well.
    at = max(place for place, text in enumerate(texts) if TASK in text)
    who = {"assistant": "assistant", "user": "environment"}
    steps = (
        Step(who.get(str(message.get("role")), "environment"), text.strip())
        for message, text in zip(messages[at + 1 :], texts[at + 1 :], strict=True)
        if text.strip()
    )
    return texts[at].rpartition(TASK)[2].strip(), tuple(steps)


def _interactions(text: str) -> Iterator[tuple[str, str]]:
    """Yield codes and their outputs; an incomplete pair, and all after it, is left out."""
    at = 0
    while True:
        places = []
        for pattern in INTERACTION:
            match = pattern.search(text, at)
            if match is None:
                return
            places.append(match)
            at = match.end()
        before, between, after = places
        yield text[before.end() : between.start()], text[between.end() : after.start()]


def _executions(interactions: Sequence[tuple[str, str]]) -> Iterator[Step]:
    for code, output in interactions:
        yield Step("assistant", code)
        yield Step("environment", output)


def _logged_task(log: str) -> str:
    """Return the task from a log that is drawn as a box."""
    _, _, after = log[:LOG_CHARS].partition(INSTRUCTION)
    match = EMPTY_LINE.search(after)
    return " ".join(after[: match.start()].replace("│", " ").split()) if match else ""


def _counts(report: str) -> tuple[int, int]:
    counts = {kind: int(number) for kind, number in COUNT.findall(report)}
    return counts.get("Passed", 0), counts.get("Failed", 0)


def _feedback(report: str, passed: int, failed: int) -> str:
    if not failed:
        return "The tests passed."
    fails = FAILS.split(report)[-1]
    return verdict_text(f"{failed} of {passed + failed} tests failed.", cut(fails, REPORT_BYTES))


APPWORLD = TrajectoryFormat(
    name="appworld",
    marks=("**/logs/environment_io.md",),
    up=2,
    beside=(CALLS, LOG, REPORT),
    read=read_task,
)
