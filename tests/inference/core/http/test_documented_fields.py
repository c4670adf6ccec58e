"""The table of fields in the documentation names what the APIs support."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inference.core.http import llama_cpp, ollama, openai
from inference.core.http.bodies import UNSERVED, Fields

PAGE = (Path(__file__).parents[4] / "docs" / "core.md").read_text(encoding="utf-8")
APIS: dict[str, list[type[Fields]]] = {
    "OpenAI": [openai.CompletionsBody],
    "llama.cpp": [llama_cpp.InfillBody],
    "Ollama": [ollama.GenerateBody, ollama.Options],
}


@pytest.mark.parametrize("api", APIS)
def test_every_field_is_documented(api: str) -> None:
    row = next(line for line in PAGE.splitlines() if re.match(rf"\| {api} \| `(prompt|input_prefix)`", line))
    fields = {name for kind in APIS[api] for name in kind.__struct_encode_fields__}
    assert set(re.findall(r"`([a-z_0-9]+)`", row)) | {"options"} == fields | {"options"}


def test_what_is_refused_is_documented() -> None:
    (told,) = re.findall(r"refuses (`echo`.*?) unless", PAGE, re.DOTALL)
    assert set(re.findall(r"`([a-z_]+)`", told)) == UNSERVED
