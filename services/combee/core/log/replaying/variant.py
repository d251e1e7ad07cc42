"""Variants of a replay: changed settings and exclusions, as written on the command line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from combee_schemas.plan import BatchOptions

SETTINGS = (
    *("model", "base_url", "batch_size", "max_wait_s", "playbook_tokens", "probation", "trust", "colluders"),
    *BatchOptions.model_fields,
)
"""Settings that a variant may change: all that shape batches, prompts, trees and playbooks."""
SIMULATION = "sim."
"""Prefix of an option of the stand-in, such as ``sim.law=lessons_only``."""
WITHOUT = "without"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to replay."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    simulation: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()

    @property
    def cuts_anew(self) -> bool:
        """Whether windows are cut anew."""
        return bool({"batch_size", "max_wait_s"} & self.settings.keys())


def parse(text: str) -> Variant:
    """Read ``NAME`` or ``NAME:key=value,key=value``; ``without`` may be repeated.

    Raises
    ------
    ValueError
        If it cannot be read; the message lists the known keys.
    """
    name, _, rest = text.partition(":")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not the name of a variant: letters, digits, _ and -, such as more:copies=3"
        )
    settings: dict[str, str] = {}
    simulation: dict[str, str] = {}
    without: list[str] = []
    for change in filter(None, rest.split(",")):
        key, given, value = (part.strip() for part in change.partition("="))
        if not given:
            raise ValueError(f"{name}: {change!r} is not key=value")
        if key == WITHOUT:
            without.append(value)
        elif key.startswith(SIMULATION):
            simulation[key.removeprefix(SIMULATION)] = value
        elif key in SETTINGS:
            settings[key] = value
        else:
            known = ", ".join((*SETTINGS, WITHOUT, "sim.OPTION"))
            raise ValueError(f"{name}: a variant cannot change {key!r}; it can change {known}")
    return Variant(name=name, settings=settings, simulation=simulation, without=tuple(without))
