"""How large a playbook may be: its token budget, and what the record of a version has room for; pure."""

from collections.abc import Sequence

from combee.core.text.prompt import tokens_by_entry
from combee_schemas.playbook import MAX_BUDGET_TOKENS, Entry, Playbook

PROPOSED_SHARE = 4
"""Proposed entries may use this part of the token budget, in addition to it: 1 / PROPOSED_SHARE."""
IMPORT_ROOM = 4
"""Batches may add 1 / IMPORT_ROOM of an import's size to it before anything is evicted."""
ROUNDED_TO = 1_000
ENTRIES_BYTES = 600 << 10
"""Maximum bytes of a version's entries without evidence and names: the rest of the record is for bookkeeping.

Newly revoked ids alone may take 256 KiB of it."""
ENTRY_BYTES = 200
"""Bytes of an entry's field names and numbers in a record."""


def budget_of(playbook: Playbook, configured_tokens: int) -> int:
    """Return a playbook's token budget: its own, which an import brought, where that is the larger one."""
    return max(configured_tokens, playbook.budget_tokens)


def budget_text(playbook: Playbook, configured_tokens: int) -> str:
    """Return a playbook's token budget in words; empty if it is the configured one."""
    if playbook.budget_tokens <= configured_tokens:
        return ""
    return (
        f"budget {playbook.budget_tokens:,} tokens, which an import brought (COMBEE_PLAYBOOK_TOKENS:"
        f" {configured_tokens:,})"
    )


def budget_for(given: Playbook, entries: Sequence[Entry]) -> int:
    """Return the token budget that an import asks for: as its file says if that suffices, else with room to learn."""
    tokens = needed_tokens(entries, given.sections)
    if given.budget_tokens >= tokens:
        return given.budget_tokens
    wanted = tokens * (IMPORT_ROOM + 1) // IMPORT_ROOM
    return min(MAX_BUDGET_TOKENS, -(-wanted // ROUNDED_TO) * ROUNDED_TO)


def oversize(entries: Sequence[Entry], sections: Sequence[str]) -> str | None:
    """Return why no playbook can hold these entries, and the remedy; None: one can."""
    tokens, size = needed_tokens(entries, sections), stored_bytes(entries)
    remedy = "import fewer entries, or several playbooks"
    if tokens > MAX_BUDGET_TOKENS:
        return f"{tokens:,} tokens of entries: a playbook holds at most {MAX_BUDGET_TOKENS:,}; {remedy}"
    if size > ENTRIES_BYTES:
        return f"{size:,} bytes of entries: the record of a version holds at most {ENTRIES_BYTES:,}; {remedy}"
    return None


def stored_bytes(entries: Sequence[Entry]) -> int:
    """Return about how many bytes entries take in a record, without evidence and names."""
    texts = (text for entry in entries for text in (entry.id, entry.section, entry.content))
    return ENTRY_BYTES * len(entries) + sum(len(text.encode(errors="replace")) for text in texts)


def needed_tokens(entries: Sequence[Entry], sections: Sequence[str]) -> int:
    """Return the smallest token budget that holds these entries."""
    shown = [entry for entry in entries if entry.is_active]
    proposed = [entry for entry in entries if not entry.is_active]
    sizes = [sum(tokens_by_entry(part, sections).values()) for part in (shown, proposed)]
    return max(sizes[0], PROPOSED_SHARE * sizes[1])
