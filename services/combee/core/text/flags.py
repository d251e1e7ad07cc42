"""Flags for texts that an agent or a reading model may take for more than a lesson; pure.

A flag is a hint for people, no verdict: the rules are patterns, an attacker can word around them, and honest lessons
are flagged as well.
"""

import re
from collections.abc import Mapping
from typing import Literal

from combee.core.text.forms import clean, comparable
from combee.core.text.redact import HIDDEN, redacted

Flag = Literal["instruction", "link", "markup", "secret", "tool call"]

_PATTERNS: Mapping[Flag, re.Pattern[str]] = {
    "instruction": re.compile(
        r"""\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}
              \b(?:instructions?|rules?|prompts?|guidelines?|polic(?:y|ies)|above|previous|prior|earlier)\b
          | \b(?:system|developer)\s+(?:prompt|message)
          | \byou\s+are\s+now\b
          | \b(?:new|updated|real|hidden)\s+instructions?\b
          | \b(?:do\s+not|don't|never)\s+(?:tell|inform|warn|mention|reveal)\b
              [^.\n]{0,40}\b(?:user|human|anyone|operator)s?\b
          | \bjailbreak | </?user>
          | ^[^\S\n]*+\#*+[^\S\n]*+(?:system|assistant)\s*:""",
        re.IGNORECASE | re.VERBOSE | re.MULTILINE,
    ),
    "markup": re.compile(
        r"""< ?[|｜][^\s|｜]+[|｜]> | \[ ?/?INST\] | < ?<?/?SYS>> | </?(?:system|assistant)>
          | <\s*+(?:/\s*+)?(?:tool_call|tool_use|function_calls?|invoke)\b""",
        re.IGNORECASE | re.VERBOSE,
    ),
    "link": re.compile(
        r"\b(?:https?|ftps?|file|wss?)://|\bwww\.\w|(?<!\S)(?>\S*?\b(?:javascript|data):)\S+[,(]",
        re.IGNORECASE,
    ),
    "tool call": re.compile(
        r""""(?:tool_calls?|function_call|arguments)"\s*:
          | \b(?:curl|wget)\s+(?:-|\S+[./])
          | \brm\s+-[a-z]*[rf]
          | \b(?:os\.system|os\.popen|subprocess\.\w+|eval|exec)\s*\(
          | \bInvoke-(?:WebRequest|Expression)\b
          | \b(?:DROP|TRUNCATE)\s+TABLE\b
          | \|\s*(?:ba|z)?sh\b""",
        re.IGNORECASE | re.VERBOSE,
    ),
}


def flags(text: str) -> frozenset[Flag]:
    """Return the flags of a text that agents may be shown."""
    shown = clean(text)
    readings = (shown, comparable(text))
    flags: set[Flag] = {flag for flag, pattern in _PATTERNS.items() if any(map(pattern.search, readings))}
    if HIDDEN in shown or redacted(shown) != shown:
        flags.add("secret")
    return frozenset(flags)
