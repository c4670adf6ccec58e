from __future__ import annotations

from pathlib import Path

import pytest

from inference.checkpoints.other_programs import lm_studio_folders, lm_studio_models, locate_in_lm_studio
from protocol.errors import BadModel


def test_a_listed_name_leads_to_its_file(tmp_path: Path) -> None:
    file = tmp_path / "lmstudio-community" / "Qwen2.5-Coder-GGUF" / "qwen-Q4_K_M.gguf"
    file.parent.mkdir(parents=True)
    for name in (file.name, "mmproj-qwen-f16.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf"):
        (file.parent / name).touch()
    found = {model.name: model.path for model in lm_studio_models(tmp_path)}
    name = "lmstudio:lmstudio-community/Qwen2.5-Coder-GGUF/qwen-Q4_K_M.gguf"
    first = "lmstudio:lmstudio-community/Qwen2.5-Coder-GGUF/big-00001-of-00002.gguf"
    assert found.keys() == {name, first}
    assert locate_in_lm_studio(name, (tmp_path / "none", tmp_path)) == found[name] == file


@pytest.mark.parametrize("rest", ["", "a", "a/b", "../b/c", "/etc/passwd", "a/..\\x/c"])
def test_other_names_are_refused(tmp_path: Path, rest: str) -> None:
    with pytest.raises(BadModel, match="write lmstudio:PUBLISHER/MODEL/FILE"):
        locate_in_lm_studio(f"lmstudio:{rest}", (tmp_path,))


def test_a_file_that_is_not_here(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"LM Studio has no file 'a/b/c\.gguf'"):
        locate_in_lm_studio("lmstudio:a/b/c.gguf", (tmp_path,))


def test_folders(tmp_path: Path) -> None:
    assert lm_studio_folders({}, tmp_path) == (
        tmp_path / ".lmstudio" / "models",
        tmp_path / ".cache" / "lm-studio" / "models",
    )
