"""From nothing to ghost text with installed wheels: the steps in Neovim, in seconds. tests/e2e/install.sh runs it."""

from __future__ import annotations

import os
import time

import pytest

from tests.e2e.neovim.conftest import OpenNeovim
from tests.e2e.neovim.test_suggestions import CODE, type_until_ghost

pytestmark = pytest.mark.skipif("TEST_MIDFILL" not in os.environ, reason="make test-install measures installed wheels")


def test_ghost_text_from_installed_wheels(open_neovim: OpenNeovim, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()

    def tell(step: str) -> None:
        nonlocal began
        with capsys.disabled():
            print(f"\n{time.monotonic() - began:.1f} s: {step}", end="")  # noqa: T201 -- the figures of docs/editors.md
        began = time.monotonic()

    neovim = open_neovim(CODE)
    tell("Neovim is open")
    neovim.until_ready()
    tell("the language server and the core run, and the model is loaded")
    offer = type_until_ghost(neovim)
    tell(f"ghost text: {offer!r}")
