"""What all messages share: frozen values, a type and a version."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from combee_schemas.marks import Hash, Name

KIB = 1024
DAY_MS = 24 * 3600 * 1000

_PART = "[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = f"{_PART}(/{_PART})*"
MAX_PLAYBOOK_NAME = 200
PlaybookName = Annotated[Name, StringConstraints(max_length=MAX_PLAYBOOK_NAME, pattern=f"^{_NAME}$")]
"""A playbook's name, such as ``support/refunds``: at most 200 letters, digits, ``. _ - /``.

Each part between slashes begins with a letter or a digit, so no part is empty, ``.`` or ``..``: browsers, proxies and
key rules that read the name as a path all see the same name."""

_BRANCH = "[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
BranchName = Annotated[Name, StringConstraints(pattern=rf"^({_BRANCH})?$")]
"""A branch's name without its playbook; empty: no branch."""


def playbook_of(line: str) -> str:
    """Return the playbook whose reflections a line learns from: the part before ``@``."""
    return line.partition("@")[0]


def _of_a_playbook(line: str) -> str:
    if len(playbook_of(line)) > MAX_PLAYBOOK_NAME:
        raise ValueError(f"a playbook's name has at most {MAX_PLAYBOOK_NAME} characters")
    return line


LineName = Annotated[
    Name, StringConstraints(pattern=f"^{_NAME}(@{_BRANCH})?$"), AfterValidator(_of_a_playbook)
]
"""A playbook or one of its branches: ``support/refunds``, ``support/refunds@short``."""


def is_branch_of(line: str, playbook: str) -> bool:
    """Return whether a line is a branch of this playbook."""
    return line != playbook == playbook_of(line)


def branch_in(line: str) -> str:
    """Return a branch's name without its playbook's; empty: the line is the playbook itself."""
    return line.partition("@")[2]


Id = Annotated[Name, StringConstraints(min_length=1, max_length=200)]
DerivedId = Annotated[Hash, StringConstraints(min_length=1, max_length=200)]
"""Id of a batch or a node, computed from its playbook's name and its position."""


Holds = Literal["entries", "components"]
"""What a playbook consists of: entries (lines of knowledge) or components (GEPA: one whole text per section)."""


SAYS_SOMETHING = re.compile(r"[^\s\x00-\x1f]")
"""Matches any character other than white space and control characters."""


def is_blank(texts: Iterable[str]) -> bool:
    """Return whether none of these texts says anything."""
    return not any(map(SAYS_SOMETHING.search, texts))


Sha256 = Annotated[Hash, StringConstraints(pattern=r"^([0-9a-f]{64})?$")]
"""A hexadecimal SHA-256; empty: unknown."""
RequestHash = Annotated[Hash, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Hexadecimal SHA-256 of the request to a model or another answerer."""


def _bound_integers(schema: Any, own: type[BaseModel]) -> None:
    """Bound the integers in a model's core schema to those that msgpack can write; models in it bound their own.

    Pydantic reads text as a number, and text of 40 digits as a number of 40 digits. JSON schemas stay as they are.
    """
    if isinstance(schema, list | tuple):
        for part in schema:
            _bound_integers(part, own)
    elif isinstance(schema, dict) and schema.get("type") == "int":
        unbounded = dict(schema)
        bounded = {"ge": -(2**63), "le": 2**64 - 1, **unbounded}
        schema.clear()
        schema.update(type="json-or-python", json_schema=unbounded, python_schema=bounded)
    elif (
        isinstance(schema, dict) and schema.get("cls", own) is own and schema.get("type") != "json-or-python"
    ):
        for part in schema.values():
            _bound_integers(part, own)


class Value(BaseModel):
    """A frozen part of a message; unknown fields are ignored so that newer writers do not break readers."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Return pydantic's schema with bounds on every integer."""
        schema = handler(source)
        _bound_integers(handler.resolve_ref_schema(schema), cls)
        return schema

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values for some fields.

        Pydantic's own method supports mutable models; copies made with it took a tenth of the time per reflection.
        """
        if deep:
            return super().model_copy(update=update, deep=True)
        copied = object.__new__(type(self))
        changed = update or {}
        object.__setattr__(copied, "__dict__", {**self.__dict__, **changed})
        object.__setattr__(copied, "__pydantic_fields_set__", self.__pydantic_fields_set__.union(changed))
        object.__setattr__(copied, "__pydantic_extra__", None)
        object.__setattr__(copied, "__pydantic_private__", None)
        return copied


class Sparse(Value):
    """A value that omits the fields in ``UNWRITTEN`` when they have their defaults; readers fill them in.

    Most values have the defaults there, and a record may hold many values.
    """

    UNWRITTEN: ClassVar[tuple[str, ...]]
    _unwritten: ClassVar[tuple[tuple[str, Any], ...]]

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        body: dict[str, Any] = serialise(self)
        values = self.__dict__
        for name, default in self._unwritten:
            if values[name] == default:
                body.pop(name, None)
        return body

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.__pydantic_fields__
        cls._unwritten = tuple((name, fields[name].default) for name in cls.UNWRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A field whose content is repeated from record to record, and is therefore cached by the codec."""

    kind: type[Value]
    many: bool = False
    """Whether the field is a tuple of such parts."""
    remembered: int
    """Cache size: number of parts a reader remembers, last read first."""


OnErasure = Literal["rewritten", "dropped", "unneeded"]
"""What an erasure does to a message. rewritten: erased texts are replaced; dropped: the message goes if it names the
subject or belongs to an erased run; unneeded: the message always goes, because it does not say whom it is about."""


class Message(Value):
    """A record's body; the codec's envelope carries ``type`` and ``version``."""

    type: ClassVar[str]
    version_number: ClassVar[int] = 1
    """It rises if a body means something else or has a new field that readers must not ignore, not with a field that
    they may ignore. Before the first release ``archive.FORMAT`` rises instead."""
    max_bytes: ClassVar[int] = 900 * KIB
    """Raw size above which a record is refused *before* it is decoded."""
    PARTS: ClassVar[Mapping[str, Part]] = {}
    """Fields cached by the codec; see `codec`."""
    PLAYBOOK: ClassVar[str] = "playbook"
    """Path of the field with the name of the message's playbook or branch; empty: the message has none."""
    RUN_IDS: ClassVar[tuple[str, ...]] = ()
    """Paths of the ids of the message's runs, its own id first."""
    ON_ERASURE: ClassVar[OnErasure] = "rewritten"

    @property
    def playbook_name(self) -> str:
        """The playbook or branch of the message; empty: it has none, or does not name it."""
        return next(_at(self, self.PLAYBOOK), "") if self.PLAYBOOK else ""

    @property
    def lack(self) -> str:
        """What the message lacks to be usable; empty: nothing."""
        return ""

    @property
    def run_ids(self) -> tuple[str, ...]:
        """All ids of the runs that the message is about."""
        return tuple(chain.from_iterable(_at(self, path) for path in self.RUN_IDS))


def _at(value: Value, path: str) -> Iterator[str]:
    """Yield the non-empty texts at a path of fields; a field with several values yields several."""
    name, _, rest = path.partition(".")
    field = getattr(value, name)
    for each in field if isinstance(field, tuple) else (field,):
        if each:
            yield from _at(each, rest) if rest else (each,)


class Usage(Sparse):
    """What model calls cost: counts, tokens and seconds of model time.

    Of a scan's tree: ``calls`` = nodes + ``checks`` − ``skips`` + ``splits`` + ``re_asks`` + ``hedges``.
    """

    UNWRITTEN = ("checks", "reused", "reused_tokens")

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    retries: int = 0
    re_asks: int = 0
    splits: int = 0
    """Additional calls of a node: halves of an input too long for the model, or the topics of a combine."""
    cached_tokens: int = 0
    """Part of ``tokens_in`` that was in the server's prompt cache."""
    skips: int = 0
    """Calls not made: nothing to combine or a single proposal, still too long after cutting, or refused by the
    server."""
    checks: int = 0
    """Additional calls: of a root the check of its result, one about what that does not say, and embeddings; of a
    group without a usable reply one that tells whether the model has any."""
    hedges: int = 0
    """Duplicate calls made because the first was slow; the loser's tokens are estimated as the winner's."""
    left_out: int = 0
    """Part of ``calls``: nodes that a combine did not wait for; their tokens are estimated from their siblings'."""
    reused: int = 0
    """Part of ``calls``: calls of a replay answered from recorded answers, at no cost."""
    reused_tokens: int = 0
    """Tokens of the ``reused`` calls, part of ``tokens_in`` and ``tokens_out``."""

    def tokens(self) -> dict[str, int]:
        """Return the tokens read, the cached part, and the tokens written, by their names in JSON."""
        return {"in": self.tokens_in, "cached": self.cached_tokens, "out": self.tokens_out}

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


NOTHING_SPENT = Usage()


CanaryPlace = Annotated[Hash, StringConstraints(pattern=r"^([1-9][0-9]{0,9}-[0-9a-f]{16})?$")]
"""A caller's place in a canary: the candidate version, and a hash of the caller's name; empty: no place."""


class Shown(Sparse):
    """The playbook version and entries that an agent was shown when it ran."""

    UNWRITTEN = ("canary",)

    version: int = Field(ge=0)
    entry_ids: tuple[Name, ...] = ()
    line: Annotated[Name, StringConstraints(max_length=300)] = ""
    """The branch of that version; empty: the playbook itself."""
    digests: tuple[Annotated[Hash, StringConstraints(max_length=24)], ...] = ()
    """Digests of the contents of ``entry_ids``, in the same order: on another line only equal contents count."""
    canary: CanaryPlace = ""
    """The caller's place; empty: the agent did not name itself, or no canary was running."""


MAX_SCORES = 10


Score = Annotated[
    dict[
        Annotated[Name, StringConstraints(min_length=1, max_length=40)],
        Annotated[float, Field(ge=-1e15, le=1e15)],
    ],
    Field(max_length=MAX_SCORES),
]
"""Named numbers that measure a run, such as ``{"accuracy": 0.8}``; higher is better."""


def named_score(score: object) -> object:
    """Return a run's score as named numbers: a single number is called ``score``."""
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return {"score": score} if is_number else score


ProvenBy = Literal["", "gateway", "secret", "key", "prefix"]
"""What proved a source's name: the gateway's key, a shared secret, a key pair, or the right to write the prefix;
empty: nothing."""
SourceNames = Literal["declared", "proven"]
"""Which source names count. declared: as producers write them; proven: only names with a proof."""


class Source(Sparse):
    """Origin of a trace, a reflection or an outcome: a name that its producer declares."""

    UNWRITTEN = ("proven",)

    name: Annotated[Name, StringConstraints(min_length=1, max_length=80)]
    proof: Annotated[Name, StringConstraints(max_length=200)] = ""
    """Free text from the producer; the proof of a name is in a header."""
    proven: ProvenBy = ""
    """Result of the check by the service that read the record; a value set by a producer is ignored."""
