"""Methods by name: built-in ones, and methods that installed packages offer by entry point."""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from combee.adapters.ports import FatalError
from combee.core.batching.limits import GROUP_BYTES
from combee.core.methods import ace, gepa
from combee.core.methods.method import PARTS, Method, shaped
from combee.core.methods.templates import templates_hash
from combee.core.playbook.trust import NO_PROBATION
from combee.process.settings.batch import BatchSettings
from combee.process.settings.group import SettingsError
from combee_schemas.plan import BatchOptions, PlanSettings, Probation, Trust
from combee_schemas.topics import MAX_LEVELS

GROUP = "combee.methods"
SETTINGS_KEPT = 64
"""Cache size: different settings of batches."""
PROBATION_BATCHES = 20
"""Number of batches without support after which a proposed entry is removed (800 runs at the default size)."""
BUILT_IN: Mapping[str, Method] = {"ace": ace, "gepa": gepa}


def names() -> tuple[str, ...]:
    """Return every method there is."""
    return (*BUILT_IN, *sorted(point.name for point in entry_points(group=GROUP)))


@cache
def method(name: str) -> Method:
    """Return a method.

    Raises
    ------
    FatalError
        If no method has this name.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in entry_points(group=GROUP, name=name):
        return _loaded(point)
    raise FatalError(
        f"there is no method {name!r}, only {', '.join(names())}: correct COMBEE_METHOD, or install the"
        f" package that offers it (entry point group {GROUP})"
    )


def _loaded(point: EntryPoint) -> Method:
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as error:
        raise FatalError(f"the method {point.name!r} ({point.value}) cannot be loaded: {error}") from error
    missing = [name for name in PARTS if not hasattr(loaded, name)]
    if missing:
        raise FatalError(
            f"{point.value} is not a method: it lacks {', '.join(missing)}: see docs/guide/methods.md"
        )
    return cast("Method", loaded)


def configured_method(settings: BatchSettings) -> Method:
    """Return the configured method.

    Raises
    ------
    FatalError
        If no method has this name, or batches may overlap and the method does not allow that.
    """
    configured = method(settings.method)
    if settings.max_inflight_batches > 1 and not configured.REBASES:
        raise SettingsError(
            f"COMBEE_MAX_INFLIGHT_BATCHES is {settings.max_inflight_batches}, but updates of the method"
            f" {settings.method} cannot be applied to a later version: set it to 1, or choose"
            " another COMBEE_METHOD"
        )
    return configured


def reflecting_method(settings: BatchSettings) -> Method:
    """Return the configured method with the configured prompts: a reflection has no manifest that fixes them.

    Raises
    ------
    FatalError
        As for ``configured_method``.
    """
    return shaped(configured_method(settings), PlanSettings(prompts=settings.prompts))


@lru_cache(SETTINGS_KEPT)
def method_of(settings: PlanSettings) -> Method:
    """Return the method of batches with these settings, bound to them; ``method`` documents the errors."""
    return shaped(method(settings.method), settings)


@lru_cache(SETTINGS_KEPT)
def templates_of(settings: PlanSettings) -> str:
    """Return the SHA-256 of the prompt templates that this process has for batches with these settings."""
    proposes = settings.probation is not None or settings.trust != "lab"
    return templates_hash(method(settings.method), settings.prompts, proposes=proposes)


def plan_settings(
    settings: BatchSettings, budget_tokens: int = 0, embeddings: str = "", trust: Trust | None = None
) -> PlanSettings:
    """Return the settings that manifests record for batches cut under this configuration.

    ``trust``: the playbook's posture; None: that of playbooks without a pattern.

    Raises
    ------
    FatalError
        As for ``configured_method``.
    """
    configured, trust = configured_method(settings), trust or settings.postures.of("")
    probation = (
        None
        if settings.probation == 1
        else Probation(reflections=settings.probation, batches=PROBATION_BATCHES)
    )
    options = {name: getattr(settings, name) for name in BatchOptions.model_fields}
    # Whose word an operation rests on is the model's claim unless it is checked.
    options["carry"] = settings.carry or trust != "lab"
    planned = PlanSettings(
        **options,
        holds=configured.HOLDS,
        max_levels=MAX_LEVELS,
        group_bytes=GROUP_BYTES,
        probation=probation,
        trust=trust,
        colluders=settings.colluders if trust == "public" else 0,
        playbook_tokens=budget_tokens,
        embeddings=embeddings,
    )
    return planned.model_copy(update={"templates": templates_of(planned)})


def as_configured(plan: PlanSettings) -> dict[str, object]:
    """Return the configuration (fields of ``BatchSettings``) under which batches get a manifest's settings."""
    policy = plan.probation or NO_PROBATION
    options = {name: getattr(plan, name) for name in BatchOptions.model_fields}
    colluders = {"colluders": plan.colluders} if plan.colluders else {}
    return {**options, "probation": policy.reflections, "trust": plan.trust, **colluders}
