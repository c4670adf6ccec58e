from __future__ import annotations

import pytest

from inference.backends.cpu.library import unavailable_reason


@pytest.fixture
def compiled() -> None:
    """For tests that need the library."""
    reason = unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
