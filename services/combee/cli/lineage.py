"""In which playbook an entry is, for those who give its id alone."""

from combee.history import newest_playbooks
from combee.ports import FatalError, Log


async def found_in(log: Log, entry_id: str, name: str | None) -> str:
    """Return the playbook that an entry is in.

    Raises
    ------
    FatalError
        If no playbook has it, or several do.
    """
    playbooks = await newest_playbooks(log)
    if name is not None:
        return name
    having = [one for one, book in playbooks.items() if any(entry.id == entry_id for entry in book.entries)]
    if len(having) == 1:
        return having[0]
    if having:
        raise FatalError(f"several playbooks have an entry {entry_id}: {', '.join(having)}; add --playbook")
    raise FatalError(f"no playbook has an entry {entry_id}; if it has left one, add --playbook to look there")
