"""Every regular expression of the project, and texts on which each would take long if it could."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import _constants as ops
from re import _parser as parser
from types import ModuleType
from typing import Any

ANCHORED = frozenset({"match", "fullmatch"})
CALLS = frozenset({"compile", "search", "sub", "subn", "split", "findall", "finditer"}) | ANCHORED
HAS_CALL = re.compile(rf"\bre\.(?:{'|'.join(sorted(CALLS))})\(")
ALPHABET = "a A0_-., \n:=/@#*`<>[](){}|\"'+é\t"
"""One character of each kind that a class may hold."""
VARIANTS = 4
"""Characters tried of each class, and branches of each alternative."""
LONG_REPEAT = 10
"""A shorter repeat takes no time."""


@dataclass(frozen=True)
class Use:
    """A pattern, the module it stands in, and whether it is tried at the beginning of a text only."""

    where: str
    pattern: re.Pattern[str]
    anchored: bool

    def run(self, text: str) -> None:
        """Do with a text what the project does with it."""
        if self.anchored:
            self.pattern.match(text)
            self.pattern.fullmatch(text)
        else:
            for _ in self.pattern.finditer(text):
                pass


def uses(roots: Iterable[Path], examples: Mapping[str, tuple[str, Sequence[str]]]) -> list[Use]:
    """Return the patterns of packages: those that are compiled at import, and those in calls of ``re``.

    ``examples`` has, by ``module: expression``, how a function uses patterns that it puts together, and some of them.

    Raises
    ------
    LookupError
        If such a pattern has no example.
    """
    texts = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path.read_text()
        for root in roots
        for path in sorted(root.rglob("*.py"))
    }
    modes: defaultdict[re.Pattern[str], set[str]] = defaultdict(set)
    places: dict[re.Pattern[str], str] = {}
    held: list[tuple[str, object, re.Pattern[str]]] = []
    for name in (name for name, text in texts.items() if HAS_CALL.search(text)):
        calls = [node for node in _nodes(texts[name]) if isinstance(node, ast.Call) and _is_call(node)]
        if not calls:
            continue
        module = importlib.import_module(name)
        for call in calls:
            function = call.func.attr  # type: ignore[attr-defined]
            key = f"{name}: {ast.unparse(call.args[0])}"
            method, given = examples.get(key, (function, None))
            for pattern in _evaluated(call, module, key, given):
                places.setdefault(pattern, name)
                modes[pattern] |= set() if method == "compile" else {method}
        for variable, value in vars(module).items():
            for pattern in _held(value):
                if isinstance(pattern.pattern, str):
                    places.setdefault(pattern, name)
                    held.append((variable, value, pattern))
    methods = _methods(texts.values(), {variable for variable, _, _ in held})
    for variable, value, pattern in held:
        modes[pattern] |= methods[variable] if pattern is value else {"search"}
    return [
        Use(places[pattern], pattern, bool(methods_used) and methods_used <= ANCHORED)
        for pattern, methods_used in modes.items()
    ]


def _is_call(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in CALLS
    )


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def _methods(texts: Iterable[str], variables: Collection[str]) -> defaultdict[str, set[str]]:
    """Return what is called on variables of a name, in whichever module; ``search`` where one is handed on."""
    mentions = re.compile(rf"\b(?:{'|'.join(sorted(variables))})\b")
    methods: defaultdict[str, set[str]] = defaultdict(set)
    for nodes in map(_nodes, filter(mentions.search, texts)):
        called = set()
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called.add(id(node.value))  # also where it is its text
                if node.attr in CALLS:
                    methods[node.value.id].add(node.attr)
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
                methods[node.id].add("search")
    return methods


def _evaluated(
    call: ast.Call, module: ModuleType, key: str, given: Sequence[str] | None
) -> list[re.Pattern[str]]:
    """Return what a call compiles, by the names of its module."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    at = 1 if call.func.attr == "compile" else 2  # type: ignore[attr-defined]
    flags_given = named.get("flags") or (call.args[at] if len(call.args) > at else ast.Constant(0))
    flags = _value(flags_given, module) if _is_flags(flags_given) else 0
    if given is None:
        try:
            given = [_value(call.args[0], module)]
        except NameError as error:
            raise LookupError(f"{key!r} needs an example") from error
    return [re.compile(text, flags) for text in given if isinstance(text, str)]


def _is_flags(node: ast.expr) -> bool:
    return "re." in ast.unparse(node)


def _value(node: ast.expr, module: ModuleType) -> Any:
    return eval(compile(ast.Expression(node), module.__name__, "eval"), dict(vars(module)))  # noqa: S307 - our own


def _held(value: object, depth: int = 3) -> Iterator[re.Pattern[str]]:
    match value:
        case re.Pattern():
            yield value
        case tuple() | list() | set() | frozenset() if depth:
            for part in value:
                yield from _held(part, depth - 1)
        case dict() if depth:
            for part in value.values():
                yield from _held(part, depth - 1)


# ---- texts


def units(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return pairs: how a text begins, and what is repeated in it, as the pattern's own parts suggest."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    made: dict[tuple[str, str], None] = {}
    for variant in range(VARIANTS):
        whole = _witness(tree, variant)
        made["", whole] = None
        for prefix, pump in _pumps(tree, variant, ""):
            made[prefix, pump] = None
            made["", prefix + 3 * pump] = None
            made["", f" {prefix}{pump}"] = None
    return [(prefix, pump) for prefix, pump in made if pump]


def _pumps(tree: Iterable[Any], variant: int, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield for each long repeat a text that leads to it, and one turn of it."""
    for op, argument in tree:
        if op in {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}:
            _, most, inner = argument
            if most >= LONG_REPEAT:
                yield prefix, _witness(inner, variant)
            yield from _pumps(inner, variant, prefix)
        elif op is ops.SUBPATTERN:
            yield from _pumps(argument[-1], variant, prefix)
        elif op is ops.ATOMIC_GROUP:
            yield from _pumps(argument, variant, prefix)
        elif op in {ops.ASSERT, ops.ASSERT_NOT}:
            yield from _pumps(argument[1], variant, prefix)
        elif op is ops.BRANCH:
            for branch in argument[1]:
                yield from _pumps(branch, variant, prefix)
        prefix += _witness([(op, argument)], variant)


def _witness(tree: Iterable[Any], variant: int) -> str:
    """Return a text that fits a part of a pattern, but for what it looks around at."""
    return "".join(_fitting(op, argument, variant) for op, argument in tree)


def _fitting(op: Any, argument: Any, variant: int) -> str:
    if op is ops.LITERAL:
        return chr(argument)
    if op in {ops.ANY, ops.IN, ops.NOT_LITERAL}:
        characters = [character for character in ALPHABET if _is_in(op, argument, character)]
        if not characters and op is ops.IN:
            return chr(argument[0][1] if argument[0][0] is ops.LITERAL else argument[0][1][0])
        return str(characters[variant % len(characters)])
    if op in {ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT}:
        least, most, inner = argument
        return _witness(inner, variant) * int(least or min(most, 1))
    if op is ops.SUBPATTERN:
        return _witness(argument[-1], variant)
    if op is ops.ATOMIC_GROUP:
        return _witness(argument, variant)
    if op is ops.BRANCH:
        return _witness(argument[1][variant % len(argument[1])], variant)
    return ""


def _is_in(op: Any, argument: Any, character: str) -> bool:
    if op is ops.ANY:
        return character != "\n"
    if op is ops.NOT_LITERAL:
        return ord(character) != int(argument)
    inside = any(_is_item(item, value, character) for item, value in argument if item is not ops.NEGATE)
    return inside != any(item is ops.NEGATE for item, _ in argument)


CATEGORIES = {
    ops.CATEGORY_DIGIT: r"\d",
    ops.CATEGORY_NOT_DIGIT: r"\D",
    ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S",
    ops.CATEGORY_WORD: r"\w",
    ops.CATEGORY_NOT_WORD: r"\W",
}


def _is_item(item: Any, value: Any, character: str) -> bool:
    if item is ops.LITERAL:
        return ord(character) == int(value)
    if item is ops.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    return re.fullmatch(CATEGORIES[value], character) is not None
