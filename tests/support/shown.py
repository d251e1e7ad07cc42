"""What the documents show: their code blocks, their links, and the commands of ours in them."""

import ast
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

from combee.cli.__main__ import app

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}\S.*\n?)+", re.MULTILINE)
SPAN = re.compile(r"(?<!`)`(combee [^`]+)`(?!`)")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
PLACE = re.compile(r"`([\w./-]+\.py)(?::([\w.]+))?`")
PAGE = re.compile(r"\bdocs/[\w./-]*\w")
CODE = ("services", "schemas", "experiments", "tests", "benchmarks", "examples", "deploy")
ASSIGNMENT = re.compile(r"^[A-Z_]+=")
SHELL = re.compile(r"^[<>|&]")


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    target: str


def pages() -> list[Path]:
    files = [
        path
        for place in ("*.md", "docs/**/*.md", "deploy/*.md", "clients/*/*.md")
        for path in ROOT.glob(place)
    ]
    return sorted(files)


def texts() -> list[Path]:
    """Return the files beside the documents that may name a page of them."""
    kinds = {".py", ".yml", ".yaml", ".toml", ".example"}
    files = [file for folder in CODE for file in (ROOT / folder).rglob("*") if file.suffix in kinds]
    return sorted([*files, *ROOT.glob("*.toml"), *ROOT.glob("*.yml")])


def pages_named(text: str) -> list[str]:
    """Return every path below ``docs`` that a text names; ``docs/design/adr/0002`` is short for one."""
    return PAGE.findall(text)


def code_places(text: str) -> list[tuple[str, str]]:
    """Return the paths of code in a page, each with the name that is said to be there (or an empty one)."""
    return PLACE.findall(LINK.sub("", text))


def is_in_code(path: str, name: str) -> bool:
    """Say whether a path of code is there (also one below ``services/combee``) and defines the name."""
    files = [
        file
        for root in (ROOT / "services" / "combee", ROOT / "services", ROOT)
        if (file := root / path).is_file()
    ]
    return bool(files) and set(filter(None, name.split("."))) <= _defined(files[0])


@cache
def _defined(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    named = {
        node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return named | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def without_code(text: str) -> str:
    return FENCE.sub("", text)


def links(text: str) -> list[Link]:
    return [Link(*match) for match in LINK.findall(without_code(text))]


def headings(text: str) -> set[str]:
    """Return the anchors that a page's headings have."""
    titles = re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def blocks(text: str) -> list[str]:
    """Return the blocks that hold commands, joined where a line goes on."""
    fenced = [body for language, body in FENCE.findall(text) if language in {"bash", "console", "sh"}]
    indented = [re.sub(r"(?m)^ {4}", "", block) for block in INDENTED.findall(without_code(text))]
    return [block.replace("\\\n", " ") for block in fenced + indented]


def command_lines(text: str) -> list[str]:
    lines = (line.strip().removeprefix("$ ") for block in blocks(text) for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def our_commands(text: str) -> list[list[str]]:
    """Return the arguments of every complete ``combee …`` in a page's blocks, in a container or not."""
    return [words[1:] for line in command_lines(text) if (words := _ours(_words(line)))[:1] == ["combee"]]


def _ours(words: list[str]) -> list[str]:
    if words[:3] != ["docker", "compose", "run"]:
        return words
    service, *arguments = itertools.dropwhile(lambda word: word.startswith("-"), words[3:])
    return words if service == "carry-over" else ["combee", *arguments]  # that one is Kafka's


def _words(line: str) -> list[str]:
    words = itertools.dropwhile(ASSIGNMENT.match, shlex.split(line, comments=True))
    return list(itertools.takewhile(lambda word: not SHELL.match(word), words))


def mentioned(text: str) -> list[str]:
    """Return every ``combee …`` in running text; it may be a pattern, such as ``combee topics create|check``."""
    return [" ".join(span.split()) for span in SPAN.findall(without_code(text))]


def variants(mention: str) -> Iterator[list[str]]:
    """Yield the arguments that a pattern stands for: ``a|b`` is either."""
    yield from map(list, itertools.product(*(word.split("|") for word in mention.split()[1:])))


@cache
def command_line() -> Any:
    """Return the command line as a tree of commands; building it takes a while."""
    return typer.main.get_command(app)


def parse(arguments: Sequence[str]) -> None:
    """Parse complete arguments as the command line would, without running anything; usage errors raise."""
    command = command_line()
    context = command.make_context("combee", list(arguments))
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


def unknown(arguments: Sequence[str]) -> list[str]:
    """Return what the command line does not know: verbs and options; values are not looked at."""
    command = command_line()
    words = list(arguments)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return [words[0]]
        command = command.commands[words.pop(0)]
    known = {
        "--help",
        *(name for option in command.params for name in (*option.opts, *option.secondary_opts)),
    }
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
