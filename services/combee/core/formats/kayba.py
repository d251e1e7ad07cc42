"""Kayba's skillbook JSON: skills by id, with their counts and sources; and sections with the ids in them.

Read and written: ids, sections, contents, counts, and as sources the last reflections an entry rests on.
Lost on the way out: how many reflections there were before those, and versions; on the way in: neutral
counts, justifications, times, embeddings, decisions about similarity, and skills that are invalid.
"""

from typing import Any

from pydantic import BaseModel, Field, TypeAdapter

from combee.core.formats.lines import refuse_twins
from combee.core.playbook.sections import section_order
from combee_schemas.playbook import Entry, Playbook

DOCUMENT = TypeAdapter(dict[str, Any])


class _Skill(BaseModel):
    id: str
    section: str
    content: str
    helpful: int = 0
    harmful: int = 0
    status: str = "active"
    sources: list[Any] = Field(default_factory=list)


class _Book(BaseModel):
    skills: dict[str, _Skill]
    sections: dict[str, list[str]] = Field(default_factory=dict)
    next_id: int = 0
    counters: bool = True
    name: str = ""
    version: int = 0


def kayba_text(playbook: Playbook) -> str:
    """Return the playbook as a skillbook; ``name``, ``version`` and ``counters`` are ours, and ignored there."""
    sections = section_order(playbook.sections, playbook.entries)
    book = {
        "skills": {entry.id: _skill(entry) for entry in playbook.entries},
        "sections": {
            section: [e.id for e in playbook.entries if e.section == section] for section in sections
        },
        "next_id": playbook.next_id,
        "similarity_decisions": {},
        "name": playbook.name,
        "version": playbook.version,
        "counters": playbook.counters,
    }
    return DOCUMENT.dump_json(book, indent=2).decode() + "\n"


def _skill(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "section": entry.section,
        "content": entry.content,
        "helpful": entry.helpful,
        "harmful": entry.harmful,
        "neutral": 0,
        "status": "active",
        "sources": [{"reflection_id": reflection_id} for reflection_id in entry.evidence],
    }


def parse_kayba(source: str) -> dict[str, Any]:
    """Return a playbook's fields from a skillbook.

    Raises
    ------
    ValueError
        If the text is not a skillbook; the message says where.
    """
    book = _Book.model_validate_json(source.removeprefix("\ufeff"))
    entries = tuple(_entry(skill) for skill in book.skills.values() if skill.status == "active")
    refuse_twins((f"skills.{at}", entry) for at, entry in enumerate(entries))
    fields = book.model_dump(include={"next_id", "counters", "name", "version"})
    return {**fields, "sections": section_order(tuple(book.sections), entries), "entries": entries}


def _entry(skill: _Skill) -> Entry:
    evidence = tuple(
        str(source["reflection_id"])
        for source in skill.sources
        if isinstance(source, dict) and "reflection_id" in source
    )
    return Entry(
        id=skill.id,
        section=skill.section,
        content=skill.content,
        helpful=skill.helpful,
        harmful=skill.harmful,
        evidence=evidence,
        evidence_count=len(evidence),
    )
