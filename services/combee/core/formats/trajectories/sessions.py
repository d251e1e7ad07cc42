"""Session files of coding assistants: Claude Code (``~/.claude/projects``) and Codex (``~/.codex/sessions``).

Neither format is documented; this reads their present lines and skips unknown ones.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from combee.core.formats.trajectories.trajectory import (
    Files,
    Trajectory,
    TrajectoryFormat,
    call_text,
    json_lines,
    text_of,
)
from combee.core.text.condensing import Step

SURROUNDINGS = (
    *(
        "<environment_context>",
        "<user_instructions>",
        "<permissions instructions>",
        "# AGENTS.md instructions",
    ),
    *(
        "<command-name>",
        "<command-message>",
        "<local-command-stdout>",
        "<local-command-caveat>",
        "Caveat: The messages",
    ),
    *("<system-reminder>", "<turn_aborted>", "<ide_opened_file>", "<skill>"),
)
"""Beginnings of messages that the program wrote in the user's name."""


def _run(steps: list[Step], agent: str, metadata: Mapping[str, str]) -> Trajectory | None:
    """Return a session's run; None: there is no question, or no step."""
    task = next((step.text for step in steps if step.who == "user"), "")
    answers = [step.text for step in steps if step.who == "assistant"]
    if not task or not answers:
        return None
    return Trajectory(
        task=task,
        steps=tuple(steps),
        answer=answers[-1],
        agent=agent,
        metadata={k: v for k, v in metadata.items() if v},
    )


def _is_own(text: str) -> bool:
    """Return whether the user wrote a user's message."""
    return bool(text.strip()) and not text.lstrip().startswith(SURROUNDINGS)


# ---- Claude Code


def read_claude_code(files: Files, mark: str) -> Trajectory | None:
    """Read a session; the work of its sub-agents is in their results."""
    steps: list[Step] = []
    seen: set[str] = set()
    version = model = ""
    for line in json_lines(files[mark]):
        message = line.get("message")
        if line.get("isSidechain") or line.get("isMeta") or line.get("isCompactSummary"):
            continue
        if not isinstance(message, dict) or line.get("type") not in ("user", "assistant"):
            continue
        if (uuid := str(line.get("uuid") or "")) and uuid in seen:
            continue  # a resumed session repeats earlier lines
        seen.add(uuid)
        version = version or str(line.get("version") or "")
        model = model or str(message.get("model") or "")
        steps += _claude_steps(str(line["type"]), message.get("content"))
    return _run(steps, f"claude-code {version}".strip(), {"gen_ai.request.model": model})


def _claude_steps(who: str, content: Any) -> Iterator[Step]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for part in parts:
        match part.get("type"):
            case "text" if who == "assistant" or _is_own(part["text"]):
                yield Step(who, part["text"])
            case "tool_use":
                yield Step("assistant", call_text(part.get("name"), part.get("input")))
            case "tool_result":
                yield Step("tool", text_of(part.get("content")), has_failed=bool(part.get("is_error")))


# ---- Codex


def read_codex(files: Files, mark: str) -> Trajectory | None:
    """Read a session, a "rollout": lines with a payload, before September 2025 the bare items."""
    steps: list[Step] = []
    version = model = ""
    for line in json_lines(files[mark]):
        payload = line.get("payload")
        match line.get("type"):
            case "session_meta" if isinstance(payload, dict):
                version = str(payload.get("cli_version") or "")
            case "turn_context" if isinstance(payload, dict):
                model = model or str(payload.get("model") or "")
            case "response_item" if isinstance(payload, dict):
                steps += _codex_steps(payload)
            case _ if payload is None:
                steps += _codex_steps(line)
    return _run(steps, f"codex {version}".strip(), {"gen_ai.request.model": model})


def _codex_steps(item: Mapping[str, Any]) -> Iterator[Step]:
    match item.get("type"):
        case "message":
            text, who = text_of(item.get("content")), str(item.get("role"))
            if who == "assistant" or (who == "user" and _is_own(text)):
                yield Step(who, text)
        case "function_call" | "custom_tool_call":
            yield Step(
                "assistant", call_text(item.get("name"), _parsed(item.get("arguments") or item.get("input")))
            )
        case "local_shell_call":
            yield Step("assistant", call_text("shell", (item.get("action") or {}).get("command")))
        case "web_search_call":
            yield Step("assistant", call_text("web_search", item.get("action")))
        case "function_call_output" | "custom_tool_call_output":
            yield _output(_parsed(item.get("output")))


def _parsed(text: Any) -> Any:
    """Return the JSON value in a text; other texts unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _output(output: Any) -> Step:
    if not isinstance(output, dict):
        return Step("tool", text_of(output))
    metadata = output.get("metadata") or {}
    text = text_of(output.get("output") if "output" in output else output.get("content"))
    failed = bool(metadata.get("exit_code")) or output.get("success") is False
    return Step("tool", text, has_failed=failed)


CLAUDE_CODE = TrajectoryFormat(name="claude-code", marks=("**/*.jsonl",), up=0, read=read_claude_code)
CODEX = TrajectoryFormat(name="codex", marks=("**/*.jsonl",), up=0, read=read_codex)
