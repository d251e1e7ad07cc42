"""As many quantities as an experiment wants, made of parts: the built-in family has only 64. All invented."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from random import Random

from combee.core.playbook.budget import entry_tokens
from combee.core.playbook.versions import empty
from combee_experiments.data.samples import PLAYBOOK
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_sim.family.family import latent, questions
from combee_sim.family.lessons import key
from combee_sim.family.quantities import Quantity
from combee_sim.law.samples import reflections_on, task_traces
from combee_sim.modes import NO_MODES, Modes

SITES = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "iris",
    "juniper",
    "larch",
    "maple",
)
THINGS = (
    *(
        "pallets",
        "crates",
        "parcels",
        "wagons",
        "tankers",
        "barges",
        "drums",
        "coils",
        "reels",
        "sheets",
        "bales",
    ),
    *("kegs", "trays", "totes", "vials", "bins", "racks", "spools", "tubes", "sacks", "casks", "hoppers"),
)
MEASURES = (
    ("loss rate", "missing", "dispatched"),
    ("delay share", "late", "timely"),
    ("damage index", "dented", "inspected"),
    ("return yield", "returned", "issued"),
    ("hold quota", "held", "released"),
    ("rework factor", "reworked", "finished"),
    ("idle drift", "idle", "moving"),
    ("recall depth", "recalled", "stocked"),
    ("transfer ratio", "transferred", "stored"),
    ("overrun debt", "excess", "planned"),
)
MOST = len(SITES) * len(THINGS) * len(MEASURES)


def quantities(count: int) -> tuple[Quantity, ...]:
    """Return so many quantities, each with a latent convention of its own.

    Raises
    ------
    ValueError
        If there are not that many.
    """
    if count > MOST:
        raise ValueError(f"there are {MOST:,} generated quantities, not {count:,}")
    parts = product(MEASURES, THINGS, SITES)
    return tuple(
        Quantity(name=f"{site} {thing} {measure}", first=f"{first} {thing}", second=f"{second} {thing}")
        for (measure, first, second), thing, site in (next(parts) for _ in range(count))
    )


@lru_cache(maxsize=2)
def reflections(
    asked: Sequence[Quantity], count: int, seed: int, modes: Modes = NO_MODES
) -> tuple[Reflection, ...]:
    """Return what the stand-in's reflector says about so many runs, each quantity about equally often."""
    rng = Random(seed)  # noqa: S311 - reproducible, not secret
    source = {one.name: questions(rng, [one]) for one in asked}
    order = [asked[n % len(asked)].name for n in range(count)]
    rng.shuffle(order)
    drawn = [next(source[name]) for name in order]
    traces = task_traces([(one.text, one.target) for one in drawn])
    return reflections_on(traces, seed, modes=modes)


def lessons(asked: Sequence[Quantity], texts: Sequence[str]) -> int:
    """Return how many of the quantities' conventions stand in some texts."""
    held = {key(text) for text in texts}
    return sum(key(latent(one).sentence()) in held for one in asked)


def filled(contents: Sequence[str], tokens: int, drawing: Random) -> Playbook:
    """Return a playbook of about so many tokens: ``contents`` among conventions of quantities."""
    others = drawing.sample(quantities(MOST), MOST)
    entries = [_entry(n, content) for n, content in enumerate(contents, 1)]
    size = sum(map(entry_tokens, entries))
    while size < tokens:
        entries.append(_entry(len(entries) + 1, latent(others.pop()).sentence()))
        size += entry_tokens(entries[-1])
    drawing.shuffle(entries)
    grown = {"version": 1, "entries": tuple(entries), "next_id": len(entries) + 1}
    return empty(PLAYBOOK).model_copy(update=grown)


def _entry(number: int, content: str) -> Entry:
    return Entry(id=f"calc-{number:05d}", section=ACE_SECTIONS[1], content=content, created_version=1)
