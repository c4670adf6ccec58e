from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median

import pytest
from next_edit import Forwards, Residency, encoder, recorded_answers, rewritten

from inference.text.tokenization import TextTokenizer, read_tokenizer
from lsp_server.documents.documents import Document
from lsp_server.next_edit.families import FORMATS
from midfill.replay.trace import Step, play, read_trace, text_at
from protocol.messages import Snippet

TESTS = Path(__file__).parents[1]
SESSION = TESTS / "data" / "rustcode-3000-3400.json.gz"
SCENARIOS = TESTS / "lab" / "evaluation" / "data" / "scenarios"


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return read_tokenizer(TESTS.parent / "inference" / "models" / "midfill-10m" / "tokenizer.json")


def steps() -> Iterator[Step]:
    return play(read_trace(SESSION), 0, 200)


@pytest.mark.parametrize("layout", ["zeta-2", "zeta-2.1", "sweep-a"])
def test_a_key_recomputes_a_small_part_of_its_prompt(layout: str, tokenizer: TextTokenizer) -> None:
    document = Document.from_text("session", "", 0, text_at(read_trace(SESSION), 0))
    run = Residency(FORMATS[layout], document, encoder(tokenizer), Snippet("o.rs", "x\n"), 2.0, tells_moves=True)
    for step in steps():
        run.step(step)
    assert len(run.requests) == 200
    assert median(run.requests) < fmean(run.prompts) / 5
    assert run.rests
    assert fmean(run.rests) > median(run.requests)  # the history stands before what is typed


@pytest.mark.parametrize("model", ["zeta-2", "sweep-next-edit-1.5B"])
def test_an_answer_without_an_edit_is_written_in_few_forwards(model: str, tokenizer: TextTokenizer) -> None:
    lookup, copy = Forwards(), Forwards()
    for answer in recorded_answers(SCENARIOS, model):
        if not answer.unchanged.startswith(answer.text):
            continue
        rewritten(answer, tokenizer, copies=False, count=lookup)
        rewritten(answer, tokenizer, copies=True, count=copy)
    assert lookup.tokens == copy.tokens > 30
    assert copy.tokens / copy.forwards > 10 > lookup.tokens / lookup.forwards
