"""Tests keep out of the user's own folders, and hypothesis asserts no times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("midfill", deadline=None)
settings.load_profile("midfill")


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cores started by tests keep their KV and their state in folders of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            patch.setenv(variable, str(tmp_path_factory.mktemp(variable.lower())))
        yield
