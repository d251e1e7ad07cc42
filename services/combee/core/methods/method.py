"""The method: builds prompts and reads replies. A method is a module (or object) with these names.

``ace`` and ``gepa`` are built in; others are found by entry point (``combee.methods``), see docs/guide/methods.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, Protocol, cast

from combee_schemas.base import Holds
from combee_schemas.model import Prompt
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation
from combee_schemas.trace import Trace

Sources = Sequence[tuple[str, ...]]
"""``sources[n - 1]`` is the evidence of a prompt's item n."""


NO_NAMES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A curator's reply: operations, and statements about the prompt's items."""

    operations: tuple[Operation, ...]
    unusable: int = 0
    """Number of operations that could not be read."""
    dropped: frozenset[int] = frozenset()
    """Numbers of the items that the reply drops by name."""
    known: Mapping[int, str] = field(default_factory=dict)
    """Item number → the entry that has its content already, as the reply claims; nothing counts unchecked."""


class Method(Protocol):
    """Prompts and replies of one way of learning; pure.

    Prompts of one batch begin with the same bytes, and foreign text goes through ``core.text.prompt.fence``.
    """

    @property
    def HOLDS(self) -> Holds:  # noqa: N802 - a constant of a module
        """What its playbooks consist of: entries, or components (one whole text per section)."""

    @property
    def REBASES(self) -> bool:  # noqa: N802 - a constant of a module
        """Whether an operation made on one version may be applied to a later one (batches may overlap)."""

    def reflect_prompt(self, trace: Trace, shown: Sequence[Entry], /) -> Prompt | None:
        """Ask what can be learned from a run; None: the method needs no model for that."""

    def read_reflection(
        self, trace: Trace, shown: Sequence[Entry], body: Mapping[str, Any], /
    ) -> dict[str, Any]:
        """Return the fields of a `Reflection`; ``body`` is the reply ({} without a call).

        Raises
        ------
        ValueError
            If there is nothing to learn from.
        """

    def aggregate_prompt(self, base: Playbook, reflections: Sequence[Reflection], /) -> Prompt:
        """Ask for operations that one group's reflections support; they are numbered from 1."""

    def combine_prompt(
        self, base: Playbook, proposals: Sequence[Operation], names: Mapping[str, str] = NO_NAMES, /
    ) -> Prompt:
        """Ask to combine the children's operations; they are numbered from 1, those with least support first.

        ``names``: the sources of reflections by their ids, for those with a name.
        """

    def read(self, base: Playbook, body: Mapping[str, Any], sources: Sources, /) -> Answer:
        """Read the reply to either prompt; never raises: what it cannot use is counted in ``unusable``.

        An operation's evidence comes from ``sources``, never from the model.
        """

    def merge(self, base: Playbook, operations: Sequence[Operation], /) -> tuple[Operation, ...]:
        """Merge operations by code after the model failed."""

    def answer_prompt(self, playbook: Playbook, question: str, /) -> Prompt:
        """Ask an agent one question with the playbook in the prompt."""


DEFAULTS = PlanSettings()
PARTS = tuple(name for name in vars(Method) if not name.startswith("_"))
SHAPED = frozenset({"reflect_prompt", "read_reflection", "aggregate_prompt", "combine_prompt", "read"})
"""Functions that take ``settings`` in a method with ``TAKES_SETTINGS``."""


def shaped(method: Method, settings: PlanSettings) -> Method:
    """Return a method bound to a batch's settings; a method without settings stays unchanged."""
    if not getattr(method, "TAKES_SETTINGS", False):
        return method
    parts = {name: getattr(method, name) for name in PARTS}
    bound = {name: partial(parts[name], settings=settings) for name in SHAPED}
    return cast("Method", SimpleNamespace(**{**parts, **bound}))
