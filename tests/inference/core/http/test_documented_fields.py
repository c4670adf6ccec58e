"""The table of fields in the documentation names what the APIs support, ignore and refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inference.core.http import llama_cpp, ollama, openai, tabby
from inference.core.http.bodies import Fields, OtherFields

PAGE = (Path(__file__).parents[4] / "docs" / "core.md").read_text(encoding="utf-8")
CONTAINERS = {"options", "segments"}
APIS: dict[str, list[tuple[type[Fields], OtherFields]]] = {
    "OpenAI": [(openai.CompletionsBody, openai.OTHERS)],
    "Mistral": [(openai.FimBody, openai.OTHERS_OF_MISTRAL)],
    "llama.cpp": [(llama_cpp.InfillBody, llama_cpp.OTHERS)],
    "Tabby": [(tabby.SegmentsBody, tabby.OTHERS), (tabby.Segments, tabby.OTHER_SEGMENTS)],
    "Ollama": [(ollama.GenerateBody, ollama.OTHERS), (ollama.Options, ollama.OTHER_OPTIONS)],
}


@pytest.mark.parametrize("api", APIS)
def test_every_field_is_documented(api: str) -> None:
    row = next(line for line in PAGE.splitlines() if re.match(rf"\| {api} \| `(prompt|input_prefix|segments)`", line))
    supported, ignored, neutral = (set(re.findall(r"`([a-z_0-9]+)`", cell)) for cell in row.split("|")[2:5])
    fields = {name for kind, _ in APIS[api] for name in kind.__struct_encode_fields__}
    assert supported - CONTAINERS == fields - CONTAINERS
    assert ignored - CONTAINERS == {name for _, others in APIS[api] for name in others.ignored}
    assert neutral - CONTAINERS == {name for _, others in APIS[api] for name in others.neutral}
