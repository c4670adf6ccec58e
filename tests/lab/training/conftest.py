"""A folder of a user's, with what is to be trained on and what is not."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.lab.packages import write_module


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for folder in ("src", "notes", "vendor", ".git"):
        (root / folder).mkdir(parents=True)
    for number in range(8):
        (root / "src" / f"module_{number}.py").write_text(write_module(Random(f"module {number}"), 12))
    (root / "app.js").write_text("".join(f"export function f{n}(x{n}) {{ return x{n} + {n}; }}\n" for n in range(12)))
    (root / "notes" / "naïve.md").write_text("".join(f"- the {word} née\n" for word in "abcdefghijklmnopqrstuvwxyz"))
    (root / ".gitignore").write_text("build.py\n")
    (root / "build.py").write_text(write_module(Random("build"), 12))
    (root / ".env").write_text("PASSWORD=hunter2\n" * 20)
    (root / "logo.png").write_bytes(b"\x89PNG\0" * 100)
    (root / "latin.py").write_bytes("# caf\u00e9\n".encode("latin-1") * 50)
    (root / "bundle.min.js").write_text("function a(b){return b};" * 50)
    (root / "src" / "no_module.py").write_text((root / "src" / "module_0.py").read_text())
    (root / "generated.py").write_text("# This file was generated, do not edit.\n" + write_module(Random("made"), 12))
    (root / "vendor" / "lib.py").write_text(write_module(Random("lib"), 12))
    (root / "huge.py").write_text("# line\n" * 100_000)
    (root / ".git" / "config.py").write_text(write_module(Random("git"), 12))
    return root
