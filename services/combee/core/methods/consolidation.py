"""Consolidation: asks the model which entries of clusters to merge or remove (ACE: grow and refine)."""

from collections.abc import Mapping, Sequence
from typing import Any

from combee.core.formats.render import ace_entry
from combee.core.playbook.operations import read_operations
from combee.core.text.prompt import FENCE_WARNING, STRING, as_items, fence, list_of, object_of
from combee_schemas.batch import Cluster
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Operation

CONSOLIDATE = f"""You are the curator of a playbook: short entries that help agents with their next tasks. It has
grown, and you make it shorter without losing what it knows. Each item is a cluster of its entries.
"alike": MERGE those that say the same into one that keeps every condition, figure and example. Leave entries apart
that complement or contradict each other: no operation for them.
"harmful": runs found the entry harmful far more often than helpful. REMOVE it, or UPDATE it if you can tell what is
wrong with it.
Answer with one JSON object: {{"reasoning": "...", "operations": [{{"type": "MERGE", "content": "...",
"entry_ids": ["...", "..."]}}]}}
"reasoning": what the entries have in common. An operation has a "type" (MERGE, UPDATE or REMOVE), "entry_ids", all of
one cluster, and "content", the new text without an id; it is empty for REMOVE. Nothing is added.
{FENCE_WARNING}"""

KIND = {"type": "string", "enum": ["MERGE", "UPDATE", "REMOVE"]}
OPERATION = object_of(type=KIND, content=STRING, entry_ids=list_of(STRING))
SCHEMA = object_of(reasoning=STRING, operations=list_of(OPERATION))


def prompt(base: Playbook, asked: Sequence[Cluster]) -> Prompt:
    """Ask what to do with clusters of entries."""
    lines = {entry.id: ace_entry(entry, counters=True) for entry in base.entries}
    items = (
        {
            "cluster": cluster.why,
            "entries": "\n".join(lines[entry_id] for entry_id in cluster.entry_ids if entry_id in lines),
        }
        for cluster in asked
    )
    return Prompt(
        system=CONSOLIDATE,
        user=fence("clusters", as_items(items)),
        reply_name="operations",
        reply_schema=SCHEMA,
        optional=frozenset({"reasoning"}),
    )


def read(body: Mapping[str, Any]) -> tuple[Operation, ...]:
    """Return the operations of a reply; they have no evidence of their own, entries keep theirs."""
    return read_operations(body, ()).operations
