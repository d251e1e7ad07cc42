"""What work costs: processor time from the published benchmark tables, bytes and calls from the product's own code.

A batch of 40 is measured by ``throughput``, one of 400 by ``hops``, of which the idle time of its services is taken
off. Two sizes give a part for each batch (in scan: for each call) and a part for each reflection.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from combee.core.batching import plan
from combee.core.batching.limits import PRODUCT
from combee.core.batching.shuffle import plan_shape
from combee.process.settings.playbook import PlaybookSettings
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import encode
from combee_schemas.model import CHARS_PER_TOKEN
from combee_schemas.reflection import Reflection

TABLES = Path(__file__).parents[2] / "docs" / "results" / "tables"
ROLES = ("shuffle", "scan", "publish", "control")
SMALL, LARGE = 40, 400
LARGE_CASE = "n = 400, L = 0.5 s: "
EACH = "processor time per reflection"
Figures = Mapping[tuple[str, str], float]
"""Medians by benchmark and figure."""
BY_PLAYBOOK, FULL = ("scan", "publish"), 1.3
"""Assumed where no table has it: with full playbooks these services cost so many times what small ones do."""
REFLECTION_BYTES = 1_000
"""Assumed."""
MEASURED_BYTES = 200
"""About what the benchmarks' reflections have: small enough for two levels."""
PLAYBOOK_TOKENS = int(PlaybookSettings.model_fields["playbook_tokens"].default)
"""Each call reads a full playbook."""
PROPOSED = 4
"""A call writes a quarter of the items that it reads, as the product's plan assumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Processor time of one service, in milliseconds."""

    unit_ms: float
    """For a batch; in scan for a call."""
    reflection_ms: float
    full: str = ""
    """How both were raised for full playbooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the tables say."""

    by_role: Mapping[str, Cost]
    hop_s: float
    """From a record's write to its reader."""
    transaction_s: float
    """The same through a transaction."""

    def batch_s(self, role: str, reflections: int) -> float:
        """Return the processor time that a batch costs a service, in seconds."""
        cost, units = self.by_role[role], calls(reflections) if role == "scan" else 1
        return (units * cost.unit_ms + reflections * cost.reflection_ms) / 1000


def measured() -> Costs:
    """Return the costs by the published tables."""
    figures = _figures()
    large = [figure for benchmark, figure in figures if benchmark == "hops" and figure.startswith(LARGE_CASE)]
    idle_s = sum(figures["hops", figure] for figure in large) / 1000
    kafka = {name: _number(text.rpartition("–")[2]) / 1000 for name, text in _kafka().items()}
    transaction = [seconds for name, seconds in kafka.items() if name.startswith("in a transaction")]
    return Costs(
        by_role={role: _cost(figures, role, idle_s) for role in ROLES},
        hop_s=kafka["an acknowledged write"] + kafka["until a reader has it"],
        transaction_s=sum(transaction) + kafka["until a read_committed reader has it"],
    )


def _cost(figures: Figures, role: str, idle_s: float) -> Cost:
    small = SMALL * figures["throughput", f"{EACH}: {role}"]
    idle = idle_s * figures["idle", f"processor time per idle second: {role}"]
    large = figures["hops", f"processor time per batch of {LARGE}: {role}"] - idle
    units = (1, 1)
    if role == "scan":
        units = sum(widths(SMALL, MEASURED_BYTES)), sum(widths(LARGE, MEASURED_BYTES))
    unit, each = _through(units[0], SMALL, small, units[1], LARGE, large)
    factor, full = _full(figures, role) if role in BY_PLAYBOOK else (1.0, "")
    return Cost(unit_ms=factor * unit, reflection_ms=factor * each, full=full)


def _full(figures: Figures, role: str) -> tuple[float, str]:
    """Return what full playbooks make of a cost, and where that comes from."""
    full = figures.get(("processor", f"{EACH}, playbooks of {PLAYBOOK_TOKENS} tokens: {role}"))
    if full is None:
        return FULL, f"× {FULL:g} assumed for full playbooks"
    factor = full / figures["processor", f"{EACH}: {role}"]
    return factor, f"× {factor:.2f} measured for full playbooks"


def _through(
    unit_1: float, n_1: float, ms_1: float, unit_2: float, n_2: float, ms_2: float
) -> tuple[float, float]:
    """Return a and b of a × unit + b × n = ms at two places; if noise makes one negative, the first place decides."""
    determinant = unit_1 * n_2 - unit_2 * n_1
    unit, each = (ms_1 * n_2 - ms_2 * n_1) / determinant, (unit_1 * ms_2 - unit_2 * ms_1) / determinant
    if unit < 0:
        return 0.0, ms_1 / n_1
    return (ms_1 / unit_1, 0.0) if each < 0 else (unit, each)


def scaling_s() -> Mapping[int, float]:
    """Return the seconds that the benchmark ``scaling`` took, by scan workers."""
    found = {
        re.fullmatch(r"(\d+) scan workers?", figure): seconds for (_, figure), seconds in _figures().items()
    }
    return {int(match[1]): seconds for match, seconds in found.items() if match}


@cache
def _figures() -> Figures:
    with (TABLES / "performance.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["benchmark"], row["figure"]): _number(row["median"]) for row in rows}


def _kafka() -> Mapping[str, str]:
    with (TABLES / "performance-kafka.csv").open(encoding="utf-8", newline="") as file:
        return dict(list(csv.reader(file))[1:])


def _number(text: str) -> float:
    return float(text.split(maxsplit=1)[0].replace(",", ""))


# ---- what a batch is made of


@cache
def widths(reflections: int, each_bytes: int = REFLECTION_BYTES) -> tuple[int, ...]:
    """Return the product's tree of a batch, leaves first."""
    return plan_shape([each_bytes] * reflections, 0, PRODUCT).widths


def calls(reflections: int) -> int:
    """Return how many model calls a batch makes."""
    return sum(widths(reflections))


def tokens(reflections: int) -> tuple[float, float, float]:
    """Return the tokens that a batch's calls read, how many of these a prompt cache can hold, and what they write."""
    shape, items, level_items = (
        widths(reflections),
        0.0,
        2.0 * reflections * REFLECTION_BYTES / CHARS_PER_TOKEN,
    )
    for _ in shape:
        items += level_items
        level_items /= PROPOSED
    playbooks = calls(reflections) * PLAYBOOK_TOKENS
    return playbooks + items, float(playbooks - PLAYBOOK_TOKENS), items / PROPOSED


@cache
def written_bytes(reflections: int) -> int:
    """Return what one batch writes to the log, from its reflections to its version; replicas not counted."""
    chance = Random(0)  # noqa: S311 - reproducible, not secret
    bodies = {
        n: Reflection(reflection_id=f"r{n:08d}", playbook="a/b", key_insight=_text(chance))
        for n in range(reflections)
    }
    batch = _batch(bodies)
    groups = plan.make_groups(batch, 0, bodies)
    proposals = int(tokens(reflections)[2] * CHARS_PER_TOKEN)
    snapshots = 2 * PLAYBOOK_TOKENS * CHARS_PER_TOKEN  # to playbooks and to history
    records = (*bodies.values(), batch, *groups)
    return sum(len(encode(record)) for record in records) + proposals + snapshots


def _text(chance: Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=REFLECTION_BYTES))


def _batch(bodies: Mapping[int, Reflection]) -> Batch:
    members = [Member(offset=at, reflection_id=body.reflection_id) for at, body in bodies.items()]
    return plan.plan_batch(
        "a/b",
        1,
        members,
        [REFLECTION_BYTES] * len(members),
        settings=PRODUCT,
        base=plan.Base(version=0, sequence=0),
        reason="size",
        batch_size=len(members),
        through_offset=len(members) - 1,
    )
