"""The keys of the compacted topics: a record under another key than its message's is nobody's."""

from combee_schemas.base import Message
from combee_schemas.codec import CodecError
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Label, Playbook, deleted_key


def check_key(key: str, message: Message) -> None:
    """Refuse a message that stands under a foreign key.

    Raises
    ------
    CodecError
        As for any record that is not what its place says.
    """
    own: tuple[str, ...]
    match message:
        case Playbook():
            own = (message.name, deleted_key(message.name))
        case Label():
            own = (f"{message.playbook}#{message.label}",)
        case BatchSize():
            own = (message.playbook,)
        case _:
            return
    if key not in own:
        raise CodecError(f"a {message.type} of {own[0]} under the key {key[:200]!r}")
