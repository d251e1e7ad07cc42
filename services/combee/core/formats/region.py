"""A marked region with a playbook's content in a user's file; every byte outside its marks stays."""

import json
import re

from combee.core.formats.files import write_playbook
from combee.core.formats.skill import FENCE, SKILL_NAME, skill_name, without_commands
from combee.core.text.prompt import INTRODUCTION
from combee_schemas.playbook import Playbook

BEGIN = "<!-- combee:begin {name} (kept by combee sync: what is written up to the end mark is replaced) -->"
END = "<!-- combee:end {name} -->"
MARK = re.compile(
    rb"(?:(?<![^\r\n])|(?<=\A\xef\xbb\xbf))[ \t]*<!--[ \t]*combee:(?P<kind>begin|end)[ \t]+(?P<name>\S+)[^\r\n]*-->"
    rb"[ \t]*(?=[\r\n]|\Z)"
)
"""A mark on a line of its own, with any indent."""
COMMENT = re.compile("<(?=!--)")
"""Matches a comment in a playbook's text, which agents wrote: it could form a mark or hide the text after it."""
IMPORT = re.compile(r"(?<![^\W_])@(?=\S)|@(?=[~./\\]|[^\s@]*@)")
"""Matches an import of a file by coding agents, also in emphasis or behind an address; e-mail addresses do not
match."""
CODE_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}+(?!.*`)|~{3,})(?P<info>.*)", re.DOTALL)
"""A line that begins or ends a block of code (CommonMark 0.31, 4.5)."""
LINE_END = re.compile(rb"\r\n|\r|\n")


def region_text(playbook: Playbook) -> str:
    """Return the text between the marks: a heading, then the playbook's Markdown export."""
    entries = tuple(
        entry.model_copy(update={"content": _closed(entry.content)}) for entry in playbook.entries
    )
    text = write_playbook(playbook.model_copy(update={"entries": entries}), "md")
    return f"{INTRODUCTION}\n\n{without_commands(IMPORT.sub('&#64;', COMMENT.sub('&lt;', text)))}"


def _closed(content: str) -> str:
    """Return a content whose code fences are escaped unless every reader sees the same blocks, all of them closed.

    A closing fence has the character and the indent of the opening one, is at least as long, and is otherwise empty;
    no line between them is indented less, which would end a list with its blocks. The first line follows the entry's
    id, where readers disagree about a fence.
    """
    lines = content.splitlines(keepends=True)
    fences = [CODE_FENCE.match(line) for line in lines]
    if not any(fences):
        return content
    opening: re.Match[str] | None = fences[0]
    is_plain = opening is None
    for line, fence in zip(lines[1:], fences[1:], strict=True):
        if opening is None:
            opening = fence
        elif fence is not None and _closes(opening, fence):
            opening = None
        elif line.strip() and not line.startswith(opening["indent"]):
            is_plain = False
    if is_plain and opening is None:
        return content
    return "".join(
        f"{fence['indent']}\\{line[fence.end('indent') :]}" if fence else line
        for line, fence in zip(lines, fences, strict=True)
    )


def _closes(opening: re.Match[str], fence: re.Match[str]) -> bool:
    return (
        fence["marks"].startswith(opening["marks"])
        and fence["indent"] == opening["indent"]
        and not fence["info"].strip()
    )


def with_region(file: bytes, name: str, text: str) -> bytes:
    """Return a file with ``text`` in this playbook's region, with the file's own line ends.

    A file without the region gets one at its end; regions of other playbooks stay as they are.

    Raises
    ------
    ValueError
        If the marks are damaged, or the file is not UTF-8: guessing could destroy the user's text.
    """
    try:
        file.decode()
    except UnicodeDecodeError as error:
        line = len(LINE_END.findall(file[: error.start])) + 1
        raise ValueError(f"line {line}: not UTF-8; save the file as UTF-8") from error
    if (marks := _marks(file, name)) is None:
        return file + _appended(file, name, text)
    begin, end = marks
    line_end = _line_end(file[begin.end() :])
    return file[: begin.end()] + line_end + _lines(text, line_end) + file[end.start() :]


def _marks(file: bytes, name: str) -> tuple[re.Match[bytes], re.Match[bytes]] | None:
    """Return the marks that begin and end a playbook's region; None if it has none."""
    marks = list(MARK.finditer(file))
    at = [number for number, mark in enumerate(marks) if mark["name"] == name.encode()]
    if not at:
        return None
    kinds = [marks[number]["kind"].decode() for number in at]
    lines = ", ".join(
        f"{kind} in line {len(LINE_END.findall(file[: marks[number].start()])) + 1}"
        for kind, number in zip(kinds, at, strict=True)
    )
    if kinds != ["begin", "end"]:
        raise ValueError(
            f"the marks of {name} are damaged ({lines}): leave one begin and one end after it, or delete all of them"
            " and the region is begun anew at the end of the file"
        )
    if at[1] != at[0] + 1:
        raise ValueError(
            f"another playbook's mark is between the marks of {name} ({lines}): move it out, because everything"
            " between them is replaced"
        )
    return marks[at[0]], marks[at[1]]


def _appended(file: bytes, name: str, text: str) -> bytes:
    """Return the text to append to a file: a blank line first, unless the file is empty."""
    line_end = _line_end(file)
    gap = b"" if file in {b"", b"\xef\xbb\xbf"} else line_end
    unended = gap if gap and not file.endswith((b"\n", b"\r")) else b""
    begin, end = (mark.format(name=name).encode() + line_end for mark in (BEGIN, END))
    return unended + gap + begin + _lines(text, line_end) + end


def _line_end(file: bytes) -> bytes:
    """Return the line end that a file uses first."""
    match = LINE_END.search(file)
    return match[0] if match else b"\n"


def _lines(text: str, line_end: bytes) -> bytes:
    lines = LINE_END.split(text.encode(errors="replace").rstrip(b"\n"))
    return b"".join(line + line_end for line in lines)


def new_file(name: str, file_name: str, folder: str) -> bytes:
    """Return the beginning of a new file before its region: the front matter that its readers expect."""
    about = json.dumps(f"{name}: lessons that agents learned from their runs; read before such a task.")
    if file_name.lower() == "skill.md":
        # Readers of skills expect the name of the folder.
        own = folder if SKILL_NAME.fullmatch(folder) else skill_name(name)
        front = (f"name: {own}", f"description: {about}")
    elif file_name.lower().endswith(".mdc"):
        front = (f"description: {about}", "alwaysApply: true")
    else:
        return b""
    return "\n".join((FENCE, *front, FENCE, "")).encode()
