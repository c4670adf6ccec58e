"""The Emacs under test; unless make test-emacs asks for it, these tests are left out, and that is said."""

from __future__ import annotations

import os
from typing import Any

EMACS = os.environ.get("TEST_EMACS", "")

if not EMACS:
    collect_ignore_glob = ["test_*.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not EMACS:
        terminalreporter.write_line("left out: the tests on Emacs (make test-emacs)")
