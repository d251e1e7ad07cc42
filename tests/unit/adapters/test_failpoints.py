import pytest

from combee.adapters.failpoints import POINTS, ExitFuse
from combee.ports import FatalError


def test_a_point_nobody_passes_is_refused_with_those_there_are() -> None:
    with pytest.raises(FatalError, match=POINTS[0]):
        ExitFuse("after lunch")
