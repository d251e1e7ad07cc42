"""A marked region of somebody's file that says what a playbook says; every byte outside its marks stays."""

import json
import re

from combee.core.formats.files import write_playbook
from combee.core.formats.skill import FENCE, SKILL_NAME, skill_name
from combee.core.text.prompt import INTRODUCTION
from combee_schemas.playbook import Playbook

BEGIN = "<!-- combee:begin {name} (kept by combee sync: what is written up to the end mark is replaced) -->"
END = "<!-- combee:end {name} -->"
MARK = re.compile(
    rb"(?:(?<![^\r\n])|(?<=\A\xef\xbb\xbf))[ \t]*<!--[ \t]*combee:(?P<kind>begin|end)[ \t]+(?P<name>\S+)[^\r\n]*-->"
    rb"[ \t]*(?=[\r\n]|\Z)"
)
"""A mark on a line of its own, wherever it is indented to."""
COMMENT = re.compile("<(?=!--)")
"""How text of a playbook, which agents wrote, would begin a mark or hide what follows."""
IMPORT = re.compile(r"(?<!\w)@(?=\S)|@(?=[~./\\])")
"""How it would name a file that coding agents read in its place; an address of e-mail does not."""
CODE_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}+(?!.*`)|~{3,})(?P<info>.*)", re.DOTALL)
"""A line that begins or ends a block of code (CommonMark 0.31, 4.5)."""
LINE_END = re.compile(rb"\r\n|\r|\n")


def region_text(playbook: Playbook) -> str:
    """Return what stands between the marks: what it is, then the playbook as its export in Markdown says it."""
    entries = tuple(
        entry.model_copy(update={"content": _closed(entry.content)}) for entry in playbook.entries
    )
    text = write_playbook(playbook.model_copy(update={"entries": entries}), "md")
    return f"{INTRODUCTION}\n\n{IMPORT.sub('&#64;', COMMENT.sub('&lt;', text))}"


def _closed(content: str) -> str:
    """Return a content whose fences of code are escaped unless every reader sees the same blocks, all of them closed.

    A closing fence has the character and the indent of the opening one, is at least as long, and says nothing else;
    between them no line is indented less, which would end a list with its blocks. The first line stands behind the
    entry's id, where some readers see a fence and others do not.
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
    """Return a file whose region of this playbook says ``text``, with the file's own line ends.

    A file without such a region gets one at its end; those of other playbooks stay as they are.

    Raises
    ------
    ValueError
        If the marks are damaged, or the file is not UTF-8: nothing is guessed about what is whose.
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
            f"between the marks of {name} ({lines}) stands another playbook's mark: move it out, for all between them"
            " is replaced"
        )
    return marks[at[0]], marks[at[1]]


def _appended(file: bytes, name: str, text: str) -> bytes:
    """Return what is to be added to a file: a blank line before it, unless the file is empty."""
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
    """Return what a file that is not there yet has before its region: the front matter that its readers look for."""
    about = json.dumps(f"{name}: lessons that agents learned from their runs; read before such a task.")
    if file_name.lower() == "skill.md":
        # Readers of skills want the name of the folder.
        own = folder if SKILL_NAME.fullmatch(folder) else skill_name(name)
        front = (f"name: {own}", f"description: {about}")
    elif file_name.lower().endswith(".mdc"):
        front = (f"description: {about}", "alwaysApply: true")
    else:
        return b""
    return "\n".join((FENCE, *front, FENCE, "")).encode()
