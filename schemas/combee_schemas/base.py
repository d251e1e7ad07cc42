"""What every message shares: frozen values, a type and a version."""

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
MOST_NAME = 200
PlaybookName = Annotated[Name, StringConstraints(max_length=MOST_NAME, pattern=f"^{_NAME}$")]
"""A playbook's name, such as ``support/refunds``: at most 200 letters, digits, ``. _ - /``.

Each part between slashes begins with a letter or a digit. So no part is empty, ``.`` or ``..``: whatever reads a name
as a path, such as a browser, a proxy or the rule of a key, reads the same name.
"""

_BRANCH = "[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
BranchName = Annotated[Name, StringConstraints(pattern=rf"^({_BRANCH})?$")]
"""Of a branch, without its playbook; empty: none."""


def playbook_of(line: str) -> str:
    """Return the playbook whose reflections a line learns from: what stands before ``@``."""
    return line.partition("@")[0]


def _of_a_playbook(line: str) -> str:
    if len(playbook_of(line)) > MOST_NAME:
        raise ValueError(f"a playbook's name has at most {MOST_NAME} characters")
    return line


LineName = Annotated[
    Name, StringConstraints(pattern=f"^{_NAME}(@{_BRANCH})?$"), AfterValidator(_of_a_playbook)
]
"""A playbook, or a branch of it: ``support/refunds``, ``support/refunds@short``."""


def is_branch_of(line: str, playbook: str) -> bool:
    """Return whether a line is a branch of this playbook."""
    return line != playbook == playbook_of(line)


def branch_in(line: str) -> str:
    """Return the name of a branch without its playbook's; empty: the line is the playbook itself."""
    return line.partition("@")[2]


Id = Annotated[Name, StringConstraints(min_length=1, max_length=200)]
DerivedId = Annotated[Hash, StringConstraints(min_length=1, max_length=200)]
"""Of a batch or a node: worked out from its playbook's name and its place."""


Holds = Literal["entries", "components"]
"""What a playbook consists of: lines of knowledge, or whole texts, one per section (GEPA: components)."""


SAYS_SOMETHING = re.compile(r"[^\s\x00-\x1f]")
"""What a text has that is more than white space and control characters."""


def is_blank(texts: Iterable[str]) -> bool:
    """Return whether none of these texts says anything."""
    return not any(map(SAYS_SOMETHING.search, texts))


Sha256 = Annotated[Hash, StringConstraints(pattern=r"^([0-9a-f]{64})?$")]
"""In hexadecimal; empty where it is unknown."""
RequestHash = Annotated[Hash, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal of what a model, or another answerer, was asked."""


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

        Pydantic's own is made for models that can change; with it, copies took a tenth of what a reflection costs.
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
    """A value that does not write the fields of ``UNWRITTEN`` at their defaults; readers fill them in.

    Most values have them there, and a record may hold many of these.
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
    """What a field of a message has that comes again in record after record."""

    kind: type[Value]
    many: bool = False
    """Whether the field has many of them."""
    remembered: int
    """Of so many, those read last, a reader remembers what they are."""


OnErasure = Literal["rewritten", "dropped", "unneeded"]
"""What an erasure leaves of a message. rewritten: all but what is erased; dropped: nothing, if it names the subject
or tells of an erased run; unneeded: nothing, as it does not say whom it is about."""


class Message(Value):
    """A record's body; the codec's envelope carries ``type`` and ``version``."""

    type: ClassVar[str]
    version_number: ClassVar[int] = 1
    max_bytes: ClassVar[int] = 900 * KIB
    """Raw size above which a record is refused *before* it is decoded."""
    PARTS: ClassVar[Mapping[str, Part]] = {}
    """By field; see `codec`."""
    PLAYBOOK: ClassVar[str] = "playbook"
    """Path of the field that names the playbook, or branch, that it is of; empty: it is of none."""
    RUN_IDS: ClassVar[tuple[str, ...]] = ()
    """Paths of the ids under which the runs are known that it tells of, its own first."""
    ON_ERASURE: ClassVar[OnErasure] = "rewritten"

    @property
    def playbook_name(self) -> str:
        """The playbook, or branch, that it is of; empty: it is of none, or does not say."""
        return next(_at(self, self.PLAYBOOK), "") if self.PLAYBOOK else ""

    @property
    def lack(self) -> str:
        """What it lacks to be of any use; empty: nothing."""
        return ""

    @property
    def run_ids(self) -> tuple[str, ...]:
        """All ids under which the runs are known that it tells of."""
        return tuple(chain.from_iterable(_at(self, path) for path in self.RUN_IDS))


def _at(value: Value, path: str) -> Iterator[str]:
    """Yield the texts at a path of fields, several where a field on it has several values; none that is empty."""
    name, _, rest = path.partition(".")
    field = getattr(value, name)
    for each in field if isinstance(field, tuple) else (field,):
        if each:
            yield from _at(each, rest) if rest else (each,)


class Usage(Sparse):
    """What model calls cost: counts, tokens and seconds of model time.

    Of a scan's tree: ``calls`` = nodes − ``skips`` + ``splits`` + ``re_asks`` + ``hedges``.
    """

    UNWRITTEN = ("reused", "reused_tokens")

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    retries: int = 0
    re_asks: int = 0
    splits: int = 0
    """Calls beside a node's first: halves of what was too long for the model, topics of a combine."""
    cached_tokens: int = 0
    """Of ``tokens_in``: what the server had in its prompt cache."""
    skips: int = 0
    """Calls not made: nothing or one proposal to combine, too long however cut, refused by the server."""
    hedges: int = 0
    """Calls made beside a slow one; the tokens of the one that lost are those of the one that won, an estimate."""
    left_out: int = 0
    """Of ``calls``: those of nodes that a combine did not wait for; their tokens are their siblings', an estimate."""
    reused: int = 0
    """Of ``calls``: those of a replay that were answered from the record, and not paid for."""
    reused_tokens: int = 0
    """Of ``tokens_in`` and ``tokens_out``: theirs."""

    def tokens(self) -> dict[str, int]:
        """Return the tokens read, those of them that were cached, and those written, by their names in JSON."""
        return {"in": self.tokens_in, "cached": self.cached_tokens, "out": self.tokens_out}

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


NOTHING_SPENT = Usage()


CanaryPlace = Annotated[Hash, StringConstraints(pattern=r"^([1-9][0-9]{0,9}-[0-9a-f]{16})?$")]
"""The place of a caller in a canary: the version that is tried, and a hash of the caller's name; empty: none."""


class Shown(Sparse):
    """Which playbook version and entries an agent had before it when it ran."""

    UNWRITTEN = ("canary",)

    version: int = Field(ge=0)
    entry_ids: tuple[Name, ...] = ()
    line: Annotated[Name, StringConstraints(max_length=300)] = ""
    """Where that version is: a branch; empty: the playbook itself."""
    digests: tuple[Annotated[Hash, StringConstraints(max_length=24)], ...] = ()
    """Of what ``entry_ids`` said, in their order: on another line only entries that say the same are meant."""
    canary: CanaryPlace = ""
    """Empty: the agent did not name itself, or there was no canary."""


MOST_SCORES = 10


Score = Annotated[
    dict[
        Annotated[Name, StringConstraints(min_length=1, max_length=40)],
        Annotated[float, Field(ge=-1e15, le=1e15)],
    ],
    Field(max_length=MOST_SCORES),
]
"""Named numbers that say how well a run went, such as ``{"accuracy": 0.8}``; higher is better."""


def named_score(score: object) -> object:
    """Return what people say of a run's score as named numbers: a number alone is called ``score``."""
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return {"score": score} if is_number else score


ProvenBy = Literal["", "gateway", "secret", "key", "prefix"]
"""What proved a source's name: the gateway's key, a shared secret, a key pair, who may write the prefix; empty:
nothing."""
SourceNames = Literal["declared", "proven"]
"""Which names of sources count. declared: as producers write them; proven: those that something proved."""


class Source(Sparse):
    """Who a trace, a reflection or an outcome comes from: a name that its producer declares."""

    UNWRITTEN = ("proven",)

    name: Annotated[Name, StringConstraints(min_length=1, max_length=80)]
    proof: Annotated[Name, StringConstraints(max_length=200)] = ""
    """Whatever the producer adds; what proves a name stands in a header."""
    proven: ProvenBy = ""
    """What the service found that read the record. Of a producer it counts for nothing."""
