"""Tests keep out of the user's own folders, and hypothesis asserts no times."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

if "MIDFILL_TEST_GPU" not in os.environ:  # Triton interprets its own functions too, if this is set when it is imported
    os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("midfill", deadline=None, max_examples=int(os.environ.get("TEST_EXAMPLES", "100")))
settings.load_profile("midfill")


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cores started by tests keep their KV and their state in folders of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            patch.setenv(variable, str(tmp_path_factory.mktemp(variable.lower())))
        yield
