from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.text.fim import FORMATS, FIMFormat
from inference.text.rendered_prompts import RenderedPrompt, read_rendered, unknown_marker
from protocol.messages import Snippet

CODE = st.text(alphabet="ab =(\n\t\u00e9", max_size=30)
FILE = Snippet("src/b.py", "y = 2\n")


def psm(fim: FIMFormat, before: str, after: str, increment: str = "") -> str:
    if fim.name == "codellama":
        return f"<PRE> {before} <SUF>{after} <MID>{increment}"
    return f"{fim.prefix}{before}{fim.suffix}{after}{fim.middle}{increment}"


def spm(fim: FIMFormat, before: str, after: str) -> str:
    if fim.name == "codellama":
        return f"<PRE> <SUF>{after} <MID> {before}"
    return f"{fim.suffix}{after}{fim.prefix}{before}{fim.middle}"


@pytest.mark.parametrize("fim", FORMATS.values(), ids=FORMATS)
@given(before=CODE, after=CODE)
def test_every_family_is_read_in_both_orders(fim: FIMFormat, before: str, after: str) -> None:
    expected = RenderedPrompt(before, after)
    assert read_rendered(spm(fim, before, after)) == expected
    if fim.middle:
        assert read_rendered(psm(fim, before, after)) == expected
        if before:
            assert read_rendered(psm(fim, before, after, "x = ")) == RenderedPrompt(before + "x = ", after)


@pytest.mark.parametrize("name", [name for name, fim in FORMATS.items() if fim.file_separator])
def test_files_in_front_are_read(name: str) -> None:
    fim = FORMATS[name]
    files = f"{fim.file_separator}{FILE.path}\n{FILE.text}{fim.file_separator}src/a.py\n"
    if fim.repository:
        files = f"{fim.repository}project\n{files}"
    expected = RenderedPrompt("x", "z", (FILE, Snippet("src/a.py", "")))
    assert read_rendered(fim.begin + files + psm(fim, "x", "z")) == expected
    assert read_rendered(files + spm(fim, "x", "z")) == expected


def test_a_file_without_a_path_is_read_whole() -> None:
    """Continue puts snippets in front of StarCoder 2's prompt without their paths."""
    prompt = "<file_sep>def f():\n    pass<file_sep><fim_prefix>a<fim_suffix>b<fim_middle>"
    assert read_rendered(prompt) == RenderedPrompt("a", "b", (Snippet("", "def f():\n    pass"),))


@pytest.mark.parametrize(
    ("prompt", "before", "after"),
    [
        ("<|code_prefix|>a<|code_suffix|>b<|code_middle|>", "a", "b"),
        ("<fim_prefix><fim_suffix>b<fim_middle>a", "a", "b"),
        ("<s>[SUFFIX]b[PREFIX]a", "a", "b"),
        ("<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>", "a", "b"),
        ("<|fim_prefix|>a<|fim_suffix|>print('<|fim_middle|>')<|fim_middle|>", "a", "print('<|fim_middle|>')"),
        ("<|fim_prefix|><|fim_suffix|><|fim_middle|>", "", ""),
    ],
)
def test_what_clients_render(prompt: str, before: str, after: str) -> None:
    assert read_rendered(prompt) == RenderedPrompt(before, after)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def f():\n    return 1",
        "marker = '<|fim_prefix|>'\nother = '<|fim_suffix|>'\nlast = '<|fim_middle|>'",
        "<|fim_prefix|>a<|fim_suffix|>b",
        "<|fim_prefix|>a",
        "[PREFIX]a[SUFFIX]b",
        "Complete this:\n<fim_prefix>a<fim_suffix>b<fim_middle>",
    ],
)
def test_other_texts_are_not_taken_for_prompts(text: str) -> None:
    assert read_rendered(text) is None


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("<|fim_hole|>a<|x|>", "<|fim_hole|>"),
        ("<｜fim▁unknown｜>a", "<｜fim▁unknown｜>"),
        (" [MY_PREFIX]a", "[MY_PREFIX]"),
        ("<div>a</div>", None),
        ("x = [prefix]", None),
        ("def f():\n", None),
    ],
)
def test_a_prompt_of_a_model_that_is_not_known(text: str, marker: str | None) -> None:
    assert read_rendered(text) is None
    assert unknown_marker(text) == marker
