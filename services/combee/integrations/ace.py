"""Combee as ACE's curator: it collects reflections and learns one batch of them in parallel, in this process.

    ace_system.curator = CombeeCurator("openai/gpt-4.1-mini", batch_size=40)

ACE's loop stays as it is and calls the curator after each step. The playbook changes when a batch is full, and at the
last step. What ACE changed in its text in between, such as counted tags, stays.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from combee.adapters.clock import SystemClock
from combee.adapters.openai.model import OpenAIModel
from combee.adapters.openai.names import Azure
from combee.adapters.ports import LanguageModel
from combee.core.batching.limits import PRODUCT
from combee.core.batching.plan import Base, make_groups, plan_batch
from combee.core.formats.files import carried_over, read_playbook
from combee.core.formats.render import ace_text
from combee.core.methods import ace
from combee.core.methods.method import Method, shaped
from combee.core.playbook import versions
from combee.core.playbook.sections import same_section
from combee.core.playbook.shown import needless_bytes
from combee.scan.aggregate import Aggregator
from combee.scan.in_memory import InMemoryScan
from combee.sdk.background import Background, close_at_exit
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.batch import Member
from combee_schemas.codec import encode
from combee_schemas.playbook import ACE_SECTIONS, Playbook
from combee_schemas.reflection import MAX_EXCERPT_CHARS, Reflection
from combee_schemas.scan import Operation, Update
from combee_schemas.trace import Trace

NAME = "ace"
BATCH_SIZE = 40
CONCURRENCY = 32
GIVE_UP_AFTER_S = 600.0
CLOSE_S = 5.0

Curated = tuple[str, int, list[dict[str, Any]], dict[str, Any]]
"""ACE's result: the playbook, the next global id, the operations and the call's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Arguments of a call of ACE's loop other than its reflection."""

    playbook: str
    next_id: int
    token_budget: int
    call_id: str
    log_dir: str | None


class CombeeCurator:
    """A curator with the ``curate`` of ACE's.

    ``model``: its name, such as ``openai/gpt-4.1-mini`` (OpenAI's and Azure's own variables count), or any
    ``LanguageModel``. ``copies``: of each reflection, in different groups. ``salt``: varies the groups.
    """

    def __init__(
        self,
        model: str | LanguageModel,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        batch_size: int = BATCH_SIZE,
        copies: int = PRODUCT.copies,
        salt: str = "",
        concurrency: int = CONCURRENCY,
        max_output_tokens: int | None = None,
        give_up_after_s: float = GIVE_UP_AFTER_S,
    ) -> None:
        if min(batch_size, copies) < 1:
            raise ValueError("batch_size and copies must be at least 1")
        self.model = model if isinstance(model, str) else type(model).__name__
        self.batch_size = batch_size
        self.usage = NOTHING_SPENT
        """Usage of all batches so far."""
        environ = os.environ  # noqa: TID251 - the variables of every client of such a server
        self._options: Mapping[str, Any] = {
            "base_url": base_url or environ.get("OPENAI_BASE_URL"),
            "api_key": api_key or environ.get("OPENAI_API_KEY"),
            "azure": Azure(
                endpoint=environ.get("AZURE_OPENAI_ENDPOINT"),
                version=environ.get("OPENAI_API_VERSION"),
                key=environ.get("AZURE_OPENAI_API_KEY"),
                token=environ.get("AZURE_OPENAI_AD_TOKEN"),
            ),
            "concurrency": concurrency,
            "max_output_tokens": max_output_tokens,
            "give_up_after_s": give_up_after_s,
        }
        self._settings = PRODUCT.model_copy(update={"copies": copies, "salt": salt})
        self._given = model
        self._opened: LanguageModel | None = None
        self._background: Background | None = None
        self._clock = SystemClock()
        self._book = versions.empty(NAME)
        self._window: list[Reflection] = []
        self._count = 0

    # ---- ACE's face

    def curate(  # noqa: PLR0917 - ACE's own signature
        self,
        current_playbook: str,
        recent_reflection: str,
        question_context: str,
        current_step: int,
        total_samples: int,
        token_budget: int,
        playbook_stats: Mapping[str, Any],
        use_ground_truth: bool = True,  # noqa: FBT001, FBT002 - the same
        use_json_mode: bool = False,  # noqa: FBT001, FBT002 - the same
        call_id: str = "curate",
        log_dir: str | None = None,
        next_global_id: int = 1,
    ) -> Curated:
        """Add a reflection; with the last one of a batch or an epoch, return the new playbook.

        The prompts are Combee's: they show counts of the playbook, never the right answer, and always ask for JSON.
        """
        del playbook_stats, use_ground_truth, use_json_mode
        step = _Step(
            playbook=current_playbook,
            next_id=next_global_id,
            token_budget=token_budget,
            call_id=call_id,
            log_dir=log_dir,
        )
        self._window.append(self._reflection(recent_reflection, question_context, step))
        if len(self._window) < self.batch_size and current_step < total_samples:
            return current_playbook, next_global_id, [], self._call_info(step, NOTHING_SPENT)
        return self._learned(step)

    def flush(
        self, current_playbook: str, *, token_budget: int, next_global_id: int = 1, log_dir: str | None = None
    ) -> Curated:
        """Learn the waiting reflections, if the last step was not the curator's."""
        step = _Step(
            playbook=current_playbook,
            next_id=next_global_id,
            token_budget=token_budget,
            call_id="flush",
            log_dir=log_dir,
        )
        if not self._window:
            return current_playbook, next_global_id, [], self._call_info(step, NOTHING_SPENT)
        return self._learned(step)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Drop the model's connections; this happens automatically at the end of the program."""
        if self._background is not None:
            if self._opened is not None and isinstance(self._given, str):
                self._background.submit(self._opened.close()).result(timeout_s)
            self._background.stop()
            self._background = self._opened = None

    shut_down = close  # at the end of the program

    # ---- a reflection

    def _reflection(self, text: str, context: str, step: _Step) -> Reflection:
        """Return the reflection that ACE's reflector wrote, with its tags; ACE has counted the tags already."""
        shown = read_playbook(step.playbook, "ace", name=NAME).entries
        self._count += 1
        own = {"reflection_id": f"{step.call_id}-{self._count}", "playbook": NAME}
        own["task_excerpt"] = context[:MAX_EXCERPT_CHARS]
        run = Trace(trace_id=own["reflection_id"], playbook=NAME, task=context)
        try:
            fields = ace.read_reflection(run, shown, _json_object(text))
        except ValueError:
            fields = {"key_insight": text[: ace.MAX_FIELD_CHARS] or "(empty)"}
        return Reflection.model_validate({**own, **fields})

    # ---- a batch

    def _learned(self, step: _Step) -> Curated:
        base, window = self._base(step), tuple(self._window)
        began_s = self._clock.monotonic()
        if self._background is None:
            self._background = Background()
            close_at_exit(self)
        update = self._background.submit(self._update(base, window, step.token_budget)).result()
        # A batch that raised is tried again with the next step.
        self._window.clear()
        self._book = versions.after_update(
            base, update, budget_tokens=step.token_budget, now_ms=self._clock.now_ms()
        )
        self.usage += update.result.usage
        seconds = self._clock.monotonic() - began_s
        call_info = self._call_info(step, update.result.usage, seconds=seconds, update=update)
        unchanged = (self._book.entries, self._book.sections) == (base.entries, base.sections)
        text = step.playbook if unchanged else ace_text(self._book)
        return text, self._book.next_id, list(map(_operation, update.result.operations)), call_info

    def _base(self, step: _Step) -> Playbook:
        """Return the playbook in ACE's text, with data about its entries from earlier batches."""
        given = read_playbook(step.playbook, "ace", name=NAME)
        return self._book.model_copy(
            update={
                "sections": given.sections,
                "entries": carried_over(self._book, given, "ace"),
                "counters": given.counters,
                "next_id": max(step.next_id, given.next_id),
            }
        )

    async def _update(self, base: Playbook, window: Sequence[Reflection], budget_tokens: int) -> Update:
        first = self._count - len(window)
        bodies = dict(enumerate(window, first))
        batch = plan_batch(
            NAME,
            base.batch_sequence + 1,
            [Member(offset=offset, reflection_id=body.reflection_id) for offset, body in bodies.items()],
            [len(encode(body)) - needless_bytes(body, NAME) for body in window],
            settings=self._settings.model_copy(update={"playbook_tokens": budget_tokens}),
            base=Base(version=base.version, sequence=base.batch_sequence),
            reason="size" if len(window) >= self.batch_size else "flush",
            batch_size=self.batch_size,
            through_offset=self._count - 1,
        )
        method = shaped(cast("Method", ace), batch.plan.settings)
        groups = [group.members for group in make_groups(batch, -1, bodies)]
        aggregator = Aggregator(self._model(), method, batch.plan.settings)
        scan = InMemoryScan(aggregator, base, batch.plan, groups)
        return _in_known_sections(await scan.update(), base.sections)

    def _model(self) -> LanguageModel:
        """Return the model; its connections belong to the background's loop."""
        if self._opened is None:
            given = self._given
            self._opened = OpenAIModel(model=given, **self._options) if isinstance(given, str) else given
        return self._opened

    # ---- data for ACE

    def _call_info(
        self, step: _Step, usage: Usage, *, seconds: float = 0.0, update: Update | None = None
    ) -> dict[str, Any]:
        """Return ACE's ``call_info``, and write it to ACE's log of model calls."""
        call_info: dict[str, Any] = {
            "role": "curator",
            "call_id": step.call_id,
            "model": self.model,
            "total_time": seconds,
            "prompt_num_tokens": usage.tokens_in,
            "response_num_tokens": usage.tokens_out,
            "num_calls": usage.calls,
            "waiting": len(self._window),
        }
        if update is not None:
            call_info |= {
                "reflections": update.plan.reflections,
                "widths": list(update.plan.widths),
                "status": update.result.status,
                "reason": update.result.reason,
            }
            if step.log_dir:
                folder = Path(step.log_dir)
                folder.mkdir(parents=True, exist_ok=True)
                file = folder / f"curator_{step.call_id}.json"
                file.write_text(json.dumps(call_info, indent=2, ensure_ascii=False), "utf-8")
        return call_info


def _json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in a reply, with or without text or a fence around it.

    Raises
    ------
    ValueError
        If there is none.
    """
    body = json.loads(text[text.find("{") : text.rfind("}") + 1])
    if not isinstance(body, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the docstring promises ValueError
    return body


def _in_known_sections(update: Update, sections: Sequence[str]) -> Update:
    """Return an update that adds no section, like ACE's curator.

    ACE's generator recognises ids by prefixes of at least three letters, which a new section's may not have.
    """
    known = dict.fromkeys([*sections, ACE_SECTIONS[-1]])

    def placed(operation: Operation) -> Operation:
        section = same_section(operation.section, known)
        return operation.model_copy(update={"section": section if section in known else ACE_SECTIONS[-1]})

    operations = tuple(map(placed, update.result.operations))
    return update.model_copy(update={"result": update.result.model_copy(update={"operations": operations})})


def _operation(operation: Operation) -> dict[str, Any]:
    """Return an operation in ACE's form, which has only ADD and names no entries."""
    shape: dict[str, Any] = {
        "type": operation.kind.value,
        "section": operation.section,
        "content": operation.content,
        "reason": f"rests on {len(operation.evidence)} reflections",
    }
    return shape | ({"entry_ids": list(operation.entry_ids)} if operation.entry_ids else {})
