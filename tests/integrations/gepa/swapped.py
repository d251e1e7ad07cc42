"""A pytest plug-in: GEPA's tests of its own class get Combee's instead."""

from collections.abc import Sequence

import pytest
from gepa.proposer.reflective_mutation import combee as theirs

from combee.integrations.gepa import CombeeReflectionLM

theirs.ComBEEReflectionLM = CombeeReflectionLM


def pytest_collection_modifyitems(items: Sequence[pytest.Function]) -> None:
    """Stop if a test would still be about GEPA's class."""
    assert items
    assert all(item.module.ComBEEReflectionLM is CombeeReflectionLM for item in items)
