"""The surroundings of Combee: settings, the model, the disk."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from combee.core.gate.policy import TrustPolicy
from combee.core.log.diagnosis.check import Check
from combee.core.text.similarity.embeddings import UNMEASURED, model_and_thresholds

MIB = 1 << 20
WARN_FREE_BYTES, FAIL_FREE_BYTES = 2048 * MIB, 256 * MIB

Form = Literal["JSON schema", "JSON mode", "plain text"]
"""The ways to ask for a reply, strictest first."""


def strangers(given: Iterable[str], known: Sequence[str]) -> dict[str, str | None]:
    """Return unknown names, each with the most similar known one."""
    return {
        name: next(iter(get_close_matches(name, known, n=1, cutoff=0.75)), None)
        for name in sorted(set(given) - set(known))
    }


def judge_trust(postures: TrustPolicy, *, can_prove: bool) -> Check:
    """Judge the configured postures: in public nothing counts where nobody can prove who they are."""
    named = ", ".join(f"{pattern} {trust}" for pattern, trust in postures.by_pattern.items()) or "* team"
    if postures.public and not can_prove:
        return Check(
            name="trust",
            verdict="warn",
            says=f"{named}: only proven sources count in public, and nobody can prove who they are",
            remedy="make keys with 'combee key NAME' and start with 'combee up --keys', or set COMBEE_TRUST=team",
        )
    proving = (
        "sources can prove who they are" if can_prove else "nobody can prove who they are, all are one source"
    )
    return Check(name="trust", verdict="ok", says=f"{named}: {proving}")


def judge_settings(unknown: Mapping[str, str | None], in_file: Sequence[str]) -> list[Check]:
    """Judge unknown settings (name → the most similar known one), and secrets ``in_file``."""
    checks: list[Check] = []
    for name, similar in unknown.items():
        meant = (
            f"did you mean {similar}?"
            if similar
            else "remove it: what docs/reference/settings.md does not list is a constant"
        )
        checks.append(
            Check(
                name="settings",
                verdict="warn",
                says=f"{name} is not a setting and has no effect",
                remedy=meant,
            )
        )
    if in_file:
        says = f"secrets in the settings file: {', '.join(in_file)}"
        remedy = "set them in the environment, and change them if others could read the file"
        checks.append(Check(name="settings", verdict="warn", says=says, remedy=remedy))
    return checks or [Check(name="settings", verdict="ok", says="all can be read and are known")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrial:
    """A model's replies to one small question in each form; ``trouble`` is the reason for no reply at all."""

    model: str
    works: frozenset[Form] = frozenset()
    refused: frozenset[Form] = frozenset()
    seconds: float = 0.0
    trouble: str | None = field(default=None)


NO_MODEL = Check(
    name="model",
    verdict="warn",
    says="none is configured",
    remedy="set COMBEE_MODEL (and COMBEE_BASE_URL, OPENAI_API_KEY as your server needs), or use the simulated"
    " one: combee up --simulated",
)


def judge_model(model: ModelTrial) -> Check:
    """Judge whether a model answers, and the strictest form that it supports."""
    if model.trouble is not None:
        says, _, remedy = model.trouble.partition("; ")
        usual = "see whether the server runs and the base URL (COMBEE_BASE_URL) is right; nothing is lost meanwhile"
        return Check(name="model", verdict="fail", says=f"{model.model}: {says}", remedy=remedy or usual)
    can = [form for form in ("JSON schema", "JSON mode", "plain text") if form in model.works]
    says = f"{model.model} answers in {model.seconds:.1f} s"
    if not can:
        return Check(
            name="model",
            verdict="fail",
            says=f"{says}, but no reply to a small question could be used",
            remedy="choose a model that follows instructions",
        )
    says = f"{says}: {', '.join(can)}"
    if can == ["plain text"]:
        remedy = "more replies will be asked for twice; a server with JSON schema or JSON mode saves calls"
        return Check(name="model", verdict="warn", says=says, remedy=remedy)
    return Check(name="model", verdict="ok", says=says)


def judge_embeddings(model: str, *, dimensions: int, seconds: float) -> Check:
    """Judge whether an embedding model answers."""
    if not dimensions:
        remedy = "choose an embedding model: this one gives empty vectors"
        return Check(name="embeddings", verdict="fail", says=f"{model} gives no vector", remedy=remedy)
    says = f"{model} answers in {seconds:.1f} s: {dimensions} dimensions"
    if model_and_thresholds(model)[1] is UNMEASURED:
        says += "; not measured (--embeddings): only nearly identical texts count as one lesson"
    return Check(name="embeddings", verdict="ok", says=says)


def judge_workers(red: Mapping[str, Sequence[str]], waits: Mapping[str, Sequence[str]]) -> list[Check]:
    """Judge the workers of 'combee up': red conditions by worker, and what they wait for."""
    checks = [
        Check(
            name="workers",
            verdict="fail",
            says=f"{name} is not ready: {'; '.join(lines)}",
            remedy=f"look at what {name} says in the terminal of 'combee up'",
        )
        for name, lines in red.items()
        if lines
    ]
    checks += [
        Check(
            name="workers",
            verdict="warn",
            says=f"{name} waits: {'; '.join(lines)}",
            remedy="nothing is lost: it goes on by itself once that answers",
        )
        for name, lines in waits.items()
        if lines
    ]
    return checks or [Check(name="workers", verdict="ok", says=f"all ready: {', '.join(red)}")]


def judge_disk(*, free_bytes: int, total_bytes: int) -> Check:
    """Judge the disk on which the embedded broker keeps its data."""
    says = f"{free_bytes / MIB:,.0f} MiB of {total_bytes / MIB:,.0f} MiB free for the embedded broker"
    if free_bytes >= WARN_FREE_BYTES:
        return Check(name="disk", verdict="ok", says=says)
    remedy = "make room, or put the data elsewhere (COMBEE_DATA_DIR): a broker without disk stops"
    verdict: Literal["warn", "fail"] = "warn" if free_bytes >= FAIL_FREE_BYTES else "fail"
    return Check(name="disk", verdict=verdict, says=says, remedy=remedy)
