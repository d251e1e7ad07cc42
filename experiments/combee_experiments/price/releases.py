"""The curators of ACE's and GEPA's releases on the same stream, as far as tokens go.

Their instructions have the releases' length, not their words, and the fields stand in the releases' order, so that a
prompt cache finds what it would find there. The stand-in answers for them as it does for Combee.
"""

import json
from collections.abc import Sequence

from combee.adapters.ports import LanguageModel
from combee.core.batching import shuffle
from combee.core.formats.render import ace_text
from combee.core.methods import gepa
from combee.core.methods.ace import OPERATIONS_SCHEMA
from combee.core.text.prompt import as_fields, estimate_tokens, fence
from combee_experiments.baselines.approaches import batches
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import LESSON_FIELDS, Reflection
from combee_schemas.scan import Operation

BEFORE_CHARS, AFTER_CHARS = 1_562, 1_079
"""Characters of ACE's instructions before its statistics and after its playbook (ace-agent/ace, ba78d34)."""
STATISTICS = {"total_bullets": 0, "high_performing": 0, "problematic": 0, "unused": 0, "by_section": {}}
WORDS = 'Here the release has instructions of this length. It asks for "operations"; what is "known" is left out. '
MINIBATCH = 3
"""Records of one of GEPA's proposals by default (gepa-ai/gepa, b265bf9)."""
COPIES = 2
"""Copies of a record where GEPA's release aggregates by groups."""


class AceReplies:
    """A model that replies as ACE's curator does: reasoning, and what is new as ADDs of three fields."""

    def __init__(self, inner: LanguageModel) -> None:
        self._inner = inner

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return the reply in the release's form, with the tokens that it takes."""
        reply = await self._inner.ask(prompt, priority=priority)
        added = [
            {name: operation[name] for name in ("type", "section", "content")}
            for operation in reply.body["operations"]
            if operation["type"] == "ADD"
        ]
        body = {"reasoning": reply.body["reasoning"], "operations": added}
        written = estimate_tokens(json.dumps(body, ensure_ascii=False))
        return Reply(body=body, usage=reply.usage.model_copy(update={"tokens_out": written}))

    def drain(self) -> None:
        self._inner.drain()

    async def close(self) -> None:
        await self._inner.close()


def _words(chars: int) -> str:
    return (WORDS * (chars // len(WORDS) + 1))[:chars]


async def ace(model: LanguageModel, begin: Playbook, made: Sequence[Reflection]) -> tuple[str, ...]:
    """Let ACE's curator read the whole playbook for each reflection; return the contents of the last playbook."""
    book = begin
    for reflection in made:
        reply = await model.ask(_curator_prompt(book, reflection))
        added = reply.body["operations"]
        entries = (
            Entry(id=f"calc-{number:05d}", section=operation["section"], content=operation["content"])
            for number, operation in enumerate(added, book.next_id)
        )
        grown = {"entries": (*book.entries, *entries), "next_id": book.next_id + len(added)}
        book = book.model_copy(update=grown)
    return tuple(entry.content for entry in book.entries)


def _curator_prompt(book: Playbook, reflection: Reflection) -> Prompt:
    said = {name: text for name in LESSON_FIELDS if (text := getattr(reflection, name))}
    parts = (
        _words(BEFORE_CHARS),
        json.dumps({**STATISTICS, "total_bullets": len(book.entries)}, indent=2),
        fence("reflection", as_fields(said)),
        fence("playbook", ace_text(book).splitlines()),
        fence("question", [reflection.task_excerpt]),
        _words(AFTER_CHARS),
    )
    return Prompt(system="", user="\n".join(parts), reply_name="operations", reply_schema=OPERATIONS_SCHEMA)


async def gepa_alone(model: LanguageModel, begin: Playbook, made: Sequence[Reflection]) -> tuple[str, ...]:
    """Let GEPA rewrite the whole text for every minibatch, as if each proposal were accepted."""
    book = as_text(begin)
    for records in batches(made, MINIBATCH):
        book = await _rewritten(model, book, gepa.aggregate_prompt(book, records))
    return _lines(book)


async def gepa_in_groups(
    model: LanguageModel, begin: Playbook, made: Sequence[Reflection], *, size: int, seed: int
) -> tuple[str, ...]:
    """Let GEPA's release aggregate batches by groups: k full texts one after the other, then one of them."""
    book = as_text(begin)
    for records in batches(made, size):
        groups = shuffle.group_count(len(records))
        dealt = shuffle.deal(
            len(records), shuffle.effective_copies(len(records), COPIES, groups), groups, seed
        )
        proposals: list[Operation] = []
        for group in dealt:
            prompt = gepa.aggregate_prompt(book, [records[place] for place in group])
            reply = await model.ask(prompt)
            proposals += gepa.read(book, reply.body, [("",)]).operations
        book = await _rewritten(model, book, gepa.combine_prompt(book, proposals))
    return _lines(book)


def as_text(book: Playbook) -> Playbook:
    """Return a playbook's contents as one text."""
    text = "\n".join(entry.content for entry in book.entries)
    entry = Entry(id="text-00001", section=gepa.COMPONENT, content=text)
    return book.model_copy(update={"entries": (entry,), "holds": gepa.HOLDS, "method": "gepa"})


async def _rewritten(model: LanguageModel, book: Playbook, prompt: Prompt) -> Playbook:
    reply = await model.ask(prompt)
    (operation,) = gepa.read(book, reply.body, [("",)]).operations
    entry = book.entries[0].model_copy(update={"content": operation.content})
    return book.model_copy(update={"entries": (entry,)})


def _lines(book: Playbook) -> tuple[str, ...]:
    return tuple(book.entries[0].content.splitlines())
