from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.publishing.model_folder import replace_files, write_model
from midfill_lab.training.run.modeling import build_model
from tests.lab.training.runs import OPTIONS, TINY


@pytest.fixture(scope="module")
def written(corpus_folder: Path, vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    model = build_model(TINY, vocabulary)
    torch.nn.Module.to(model, torch.bfloat16)
    write_model(model, corpus_folder / "tokenizer.json", folder, OPTIONS)
    return folder


def test_transformers_loads_and_runs_it(written: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(written, dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(written)
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|endoftext|>") == tokenizer.eos_token_id
    prompt = tokenizer("<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>", return_tensors="pt")
    assert prompt["input_ids"][0, 0] == tokenizer.convert_tokens_to_ids("<|fim_prefix|>")
    generated = model.generate(**prompt, max_new_tokens=4)
    assert generated.shape[1] > prompt["input_ids"].shape[1]


def test_both_loaders_agree_on_the_tokens_of_text(written: Path) -> None:
    plain, wrapped = Tokenizer.from_file(str(written / "tokenizer.json")), AutoTokenizer.from_pretrained(written)
    text = "def naïve(x):\n    return {'a': [1, 22]}  # é\n"
    assert plain.encode(text).ids == wrapped(text)["input_ids"]
    assert wrapped.decode(wrapped(text)["input_ids"]) == text


def test_files_are_replaced_and_others_stay(tmp_path: Path) -> None:
    for folder, text in (("old", "old"), ("new", "new")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(text)
    (tmp_path / "old" / "notes.txt").write_text("the user's")
    replace_files(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old" / "config.json").read_text() == "new"
    assert (tmp_path / "old" / "notes.txt").read_text() == "the user's"
