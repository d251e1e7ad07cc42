"""Methods by name: the built-in ones, and those that installed packages offer by entry point."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from combee.core.method import Method
from combee.core.methods import ace
from combee.ports import FatalError

GROUP = "combee.methods"
BUILT_IN: Mapping[str, Method] = {"ace": ace}


def names() -> tuple[str, ...]:
    """Return every method there is."""
    return (*BUILT_IN, *sorted(point.name for point in entry_points(group=GROUP)))


@cache
def method(name: str) -> Method:
    """Return a method.

    Raises
    ------
    FatalError
        If there is none of this name.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in entry_points(group=GROUP, name=name):
        found: Method = point.load()
        return found
    raise FatalError(
        f"there is no method {name!r}, only {', '.join(names())}: correct COMBEE_METHOD, or install the"
        f" package that offers it (entry point group {GROUP})"
    )
