"""Logs as JSON: one object a line whoever says it, with service, playbook and batch, and without secrets."""

import json
import subprocess
import sys
from typing import Any

PREAMBLE = """
import logging, warnings
import structlog
from combee.process.telemetry.logs import configure_logs
configure_logs("info", json=True, service="scan")
logger = structlog.get_logger()
"""
SECRET = "sk-" + "a1" * 12


def said(script: str) -> list[dict[str, Any]]:
    """Return what a process with these lines logs: the set-up is the whole process's."""
    command = [sys.executable, "-c", PREAMBLE + script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return [json.loads(line) for line in ended.stderr.splitlines()]


def test_an_event_says_whose_it_is_and_what_it_is_about() -> None:
    (event,) = said(
        'structlog.contextvars.bind_contextvars(playbook="support/refunds", batch="b-1")\nlogger.info("any")'
    )
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "any",
        "level": "info",
        "service": "scan",
        "playbook": "support/refunds",
        "batch": "b-1",
    }


def test_libraries_warnings_and_what_ends_the_process_are_objects_too() -> None:
    library, warned, crashed = said(
        """
try:
    raise ValueError("two\\nlines")
except ValueError:
    logging.getLogger("faust").exception("it %s", "failed")
warnings.warn("old", stacklevel=1)
raise RuntimeError("the end")
"""
    )
    assert (library["event"], library["logger"], library["level"]) == ("it failed", "faust", "error")
    assert "two\nlines" in library["exception"]
    assert "UserWarning: old" in warned["event"]
    assert (crashed["event"], crashed["level"]) == ("crashed", "critical")
    assert "RuntimeError: the end" in crashed["exception"]
    assert {event["service"] for event in (library, warned, crashed)} == {"scan"}


def test_secrets_are_hidden_wherever_they_slipped_in() -> None:
    events = said(
        f"""
logger.error("refused {SECRET}", error="key {SECRET}", api_key="short", more={{"password": "{SECRET}"}})
logging.getLogger("openai").error("Authorization: Bearer {SECRET}")
raise RuntimeError("{SECRET}")
"""
    )
    assert len(events) == 3
    assert SECRET not in json.dumps(events)
    assert events[0]["api_key"] == "***"


def test_no_id_of_others_controls_the_terminal() -> None:
    script = PREAMBLE.replace("json=True", "json=False") + 'logger.info("any", id="r-\\x1b[2J\\x9b\\u202e")'
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "id=r-" in ended.stderr
    assert ended.stderr.replace("\n", "").isprintable()


def test_no_librarys_line_controls_the_terminal_tells_a_secret_or_fakes_another_line() -> None:
    script = PREAMBLE.replace("json=True", "json=False")
    script += f'logging.getLogger("engineio").error("Invalid session \\x1b[2J {SECRET}\\n2026 approved")'
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    (line,) = ended.stderr.splitlines()
    assert line.isprintable()
    assert "approved" in line
    assert SECRET not in line
