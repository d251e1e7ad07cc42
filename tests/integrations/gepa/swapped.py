"""A pytest plug-in: GEPA's tests of its own class get Combee's instead."""

from collections.abc import Sequence
from importlib import import_module

import pytest

from combee.integrations.gepa import CombeeReflectionLM

# The release that types are checked against does not have this module yet.
theirs = import_module("gepa.proposer.reflective_mutation.combee")
theirs.ComBEEReflectionLM = CombeeReflectionLM  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: Sequence[pytest.Function]) -> None:
    """Stop if a test would still be about GEPA's class."""
    assert items
    assert all(item.module.ComBEEReflectionLM is CombeeReflectionLM for item in items)
