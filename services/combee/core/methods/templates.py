"""The hash of a method's prompt templates: workers with equal hashes write equal prompts for equal input."""

import json
from hashlib import sha256

from combee.core.methods import checking
from combee.core.methods.method import Method, shaped
from combee_schemas.model import Prompt
from combee_schemas.plan import PlanSettings, Prompts
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace

ENTRY = Entry(id="misc-00001", section="OTHERS", content="an entry", helpful=1)
OTHER_ENTRY = Entry(id="misc-00002", section="OTHERS", content="another")
PLAYBOOK = Playbook(name="templates", version=1, sections=("OTHERS",), entries=(ENTRY,), next_id=2)
TRACE = Trace(
    trace_id="t",
    playbook="templates",
    task="a task",
    trajectory="a run",
    answer="an answer",
    feedback="feedback",
)
REFLECTION = Reflection(
    reflection_id="r",
    playbook="templates",
    reasoning="reasoning",
    error_identification="an error",
    root_cause_analysis="a cause",
    correct_approach="an approach",
    key_insight="an insight",
    task_excerpt="a task",
    bullet_tags=(BulletTag(id=ENTRY.id, tag="helpful"),),
    side_info={"Feedback": "feedback"},
)
PROPOSALS = (
    Operation(kind=OperationKind.ADD, section="OTHERS", content="an addition", evidence=("r",)),
    Operation(kind=OperationKind.UPDATE, content="a change", entry_ids=(ENTRY.id,), evidence=("r",)),
)
"""Input of the hash, fixed for ever: another input would look like other templates."""


def templates_hash(method: Method, prompts: Prompts = "full", *, proposes: bool = False) -> str:
    """Return the SHA-256 of the prompts that a method writes for the fixed input, in a model class's wording.

    ``proposes``: prompts may hold proposed entries.
    """
    method = shaped(method, PlanSettings(prompts=prompts))
    written: tuple[Prompt | None, ...] = (
        method.reflect_prompt(TRACE, (ENTRY,)),
        method.aggregate_prompt(PLAYBOOK, (REFLECTION, REFLECTION)),
        method.combine_prompt(PLAYBOOK, PROPOSALS, {REFLECTION.reflection_id: "a source"}),
    )
    if proposes:
        pending = ENTRY.model_copy(update={"state": "proposed"})
        playbook = PLAYBOOK.model_copy(update={"entries": (ENTRY, pending)})
        written += (method.aggregate_prompt(playbook, (REFLECTION,)),)
    if method.HOLDS == "entries":
        change = checking.Rewrite(before=ENTRY.content, after=OTHER_ENTRY.content)
        written += (checking.prompt((REFLECTION.key_insight,), (ENTRY.content,), (change,)),)
    described = [_described(prompt) if prompt else None for prompt in written]
    return sha256(json.dumps(described, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _described(prompt: Prompt) -> list[object]:
    return [prompt.system, prompt.user, prompt.reply_name, dict(prompt.reply_schema), sorted(prompt.optional)]
