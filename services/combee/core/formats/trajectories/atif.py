"""ATIF, the Agent Trajectory Interchange Format (v1.0 to v1.8), and Harbor's trials, which contain it.

A trial's folder: ``result.json``, ``agent/trajectory.json``, ``verifier/``; with several steps ``steps/NAME/agent/``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from combee.core.formats.intake import LineError
from combee.core.formats.trajectories.trajectory import (
    Files,
    Trajectory,
    TrajectoryFormat,
    call_text,
    json_object,
    text_of,
    verdict_text,
)
from combee.core.text.condensing import Step
from combee.core.text.shortening import cut

VERSION = re.compile(r"ATIF-v1\.\d+")
WHO = {"agent": "assistant"}
TEST_BYTES = 6 * 1024
SOLVED = 1.0


def read_atif(files: Files, mark: str) -> Trajectory | None:
    """Read one file; other JSON in the folder is ignored."""
    document = json_object(files[mark], mark)
    return _read(document) if VERSION.fullmatch(str(document.get("schema_version"))) else None


def _read(document: Mapping[str, Any]) -> Trajectory:
    steps = document.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise LineError("an ATIF trajectory needs steps, each an object")
    own = [step for step in steps if not step.get("is_copied_context")]
    texts = [text_of(step.get("message")) for step in own if step.get("source") == "agent"]
    agent = document.get("agent") or {}
    return Trajectory(
        task=next((text_of(step.get("message")) for step in own if step.get("source") == "user"), ""),
        steps=tuple(part for step in own for part in _steps(step)),
        answer=next((text for text in reversed(texts) if text), ""),
        agent=" ".join(str(agent[name]) for name in ("name", "version") if agent.get(name)),
        metadata={"gen_ai.request.model": str(agent["model_name"])} if agent.get("model_name") else {},
    )


def _steps(step: Mapping[str, Any]) -> Iterator[Step]:
    who = WHO.get(str(step.get("source")), str(step.get("source")))
    calls = [
        call_text(call.get("function_name"), call.get("arguments")) for call in step.get("tool_calls") or ()
    ]
    texts = [step.get("reasoning_content"), text_of(step.get("message")), *calls]
    if text := "\n".join(str(part) for part in texts if part):
        yield Step(who, text)
    for result in (step.get("observation") or {}).get("results") or ():
        extra = result.get("extra") or {}
        if text := text_of(result.get("content")):
            yield Step("tool", text, has_failed=bool(extra.get("tool_result_is_error")))


def read_trial(files: Files, mark: str) -> Trajectory | None:
    """Read a trial of Harbor."""
    result = json_object(files[mark], mark)
    if "trial_name" not in result:
        return None  # the result of a whole job
    runs = [
        _read(json_object(files[place], place))
        for place in sorted(files, key=_place)
        if place.rpartition("/")[2].startswith("trajectory")
    ]
    if not runs:
        raise LineError("a trial without agent/trajectory.json: its agent writes no ATIF")
    rewards = _rewards(result)
    error = result.get("exception_info") or {}
    failed = f"{error.get('exception_type')}: {error.get('exception_message')}" if error else ""
    success = None if not rewards else all(value >= SOLVED for value in rewards.values())
    tests = "" if success else cut(_tests(files), TEST_BYTES)
    name = str(result.get("task_name") or "")
    return Trajectory(
        task=runs[0].task or name,
        steps=tuple(step for run in runs for step in run.steps),
        answer=runs[-1].answer,
        feedback=verdict_text(
            "" if success is None else "The tests passed." if success else "The tests failed.", failed, tests
        ),
        success=success,
        score=rewards,
        agent=runs[0].agent,
        metadata={**runs[0].metadata, "task_id": name},
    )


def _place(place: str) -> tuple[str, int]:
    """Sort a trajectory before its continuations, ``trajectory.cont-N.json``."""
    number = re.search(r"cont-(\d+)", place)
    return place.rpartition("/")[0], int(number[1]) if number else 0


def _rewards(result: Mapping[str, Any]) -> dict[str, float]:
    """Return a trial's rewards; with several steps, those of the last step with any."""
    results = [result, *reversed(result.get("step_results") or ())]
    given = ((part.get("verifier_result") or {}).get("rewards") for part in results)
    rewards: Mapping[str, Any] = next((found for found in given if found), {})
    return {str(name): float(value) for name, value in rewards.items()}


def _tests(files: Files) -> str:
    return "\n".join(files[place] for place in sorted(files) if place.endswith("test-stdout.txt"))


ATIF = TrajectoryFormat(name="atif", marks=("**/*.json",), up=0, read=read_atif)
HARBOR = TrajectoryFormat(
    name="harbor",
    marks=("**/result.json",),
    up=1,
    beside=(
        *("agent/trajectory*.json", "steps/*/agent/trajectory*.json"),
        *("verifier/test-stdout.txt", "steps/*/verifier/test-stdout.txt"),
    ),
    read=read_trial,
)
