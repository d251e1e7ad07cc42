"""A skill file (``SKILL.md``): front matter that tells an agent when to read the file, then the playbook."""

import json
import re

from combee.core.formats.render import markdown_text
from combee_schemas.playbook import Playbook

FENCE = "---"
FRONT = re.compile(rf"\ufeff?{FENCE}[ \t]*(\r\n|\r|\n).*?(\r\n|\r|\n){FENCE}[ \t]*(\r\n|\r|\n|$)", re.DOTALL)
MAX_NAME_CHARS = 64
SKILL_NAME = re.compile(rf"(?=.{{1,{MAX_NAME_CHARS}}}$)[a-z0-9]+(-[a-z0-9]+)*")
"""Names of skills that the agents which read them accept."""
COMMAND = re.compile(r"!(?=`)|(?<=```)!")
"""Matches the mark of a command that coding agents run when they read a skill: in a line or in a block of code."""
ESCAPE = re.compile(r"&(?P<escaped>amp;)?(?P<rest>(?:amp;)*#33;)")


def skill_name(name: str) -> str:
    """Return a playbook's name in the form of a skill's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_NAME_CHARS].rstrip("-") or "playbook"


def skill_text(playbook: Playbook) -> str:
    """Return the playbook as a skill; the Markdown keeps what `markdown_text` keeps."""
    learned = f"{len(playbook.entries)} lessons that agents learned from their runs; read before such a task."
    front = (
        f"name: {skill_name(playbook.name)}",
        f"description: {json.dumps(f'{playbook.name}: {learned}')}",
        "metadata:",
        f"  playbook: {json.dumps(playbook.name)}",
        f'  version: "{playbook.version}"',
    )
    return "\n".join((FENCE, *front, FENCE, "", without_commands(markdown_text(playbook))))


def without_commands(text: str) -> str:
    """Return a playbook's text, which agents wrote, with no command that would run where it is read."""
    return COMMAND.sub("&#33;", ESCAPE.sub(r"&amp;\g<escaped>\g<rest>", text))


def with_commands(text: str) -> str:
    """Return the text from which ``without_commands`` made this one."""
    return ESCAPE.sub(lambda match: f"&{match['rest']}" if match["escaped"] else "!", text)


def is_skill(source: str) -> bool:
    """Return whether a text begins with front matter."""
    return FRONT.match(source) is not None


def without_front(source: str) -> str:
    """Return the playbook's text in a skill; empty lines replace the front matter, so that line numbers stay."""
    front = FRONT.match(source)
    if front is None:
        return with_commands(source)
    return "\n" * len(front[0].splitlines()) + with_commands(source[front.end() :])
