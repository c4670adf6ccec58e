"""What a command says while it waits."""

from __future__ import annotations

import io

import pytest

from midfill.core_to_ask import Waiting


def test_elsewhere_than_in_a_terminal_each_thing_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting() as waiting:
        waiting.on("the core loads [tiny]", 0.1)
        waiting.on("the core loads [tiny]", 0.6)
        waiting.on("indexing /a")
        waiting.on("the core loads [tiny]")
        waiting.note("done")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "midfill: the core loads [tiny]\nmidfill: indexing /a\nmidfill: done\n"


def test_a_terminal_has_a_line_redrawn_with_the_share_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with Waiting() as waiting:
        waiting.on("the core loads tiny", 0.25)
    assert "the core loads tiny, 25%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased
