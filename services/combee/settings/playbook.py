"""Settings of playbooks."""

from pydantic import Field

from combee.settings.group import Group


class PlaybookSettings(Group):
    """How large a playbook may grow."""

    playbook_tokens: int = Field(
        16_000, ge=100, le=24_000, description="token budget of a playbook's entries (tokens)"
    )
