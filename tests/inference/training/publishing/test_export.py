from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference.training.errors import CheckpointError
from inference.training.publishing.export import export_model
from inference.training.run.checkpoints import RunFolder
from tests.inference.training.runs import steps, train


@pytest.fixture(scope="module")
def exported(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    train(corpus_folder, root / "run", steps(2))
    export_model(RunFolder(root / "run"), corpus_folder, root / "midfill-test", samples=2)
    return root / "midfill-test"


def test_the_folder_is_a_hugging_face_model(exported: Path) -> None:
    assert {path.name for path in exported.iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert [path.name for path in exported.parent.iterdir() if path.name.startswith(".")] == []


def test_transformers_loads_and_runs_it(exported: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(exported, dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(exported)
    assert model.dtype == torch.bfloat16
    assert model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|endoftext|>") == tokenizer.eos_token_id
    prompt = tokenizer("<|fim_prefix|>def f(<|fim_suffix|>):\n<|fim_middle|>", return_tensors="pt")
    assert prompt["input_ids"][0, 0] == tokenizer.convert_tokens_to_ids("<|fim_prefix|>")
    generated = model.generate(**prompt, max_new_tokens=4)
    assert generated.shape[1] > prompt["input_ids"].shape[1]


def test_the_weights_are_those_of_the_checkpoint(exported: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(exported, dtype="auto")
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    size = (exported / "model.safetensors").stat().st_size
    assert size < 2 * sum(parameter.numel() for parameter in model.parameters()) + 20_000


def test_both_loaders_agree_on_the_tokens_of_text(exported: Path) -> None:
    plain, wrapped = Tokenizer.from_file(str(exported / "tokenizer.json")), AutoTokenizer.from_pretrained(exported)
    text = "def naïve(x):\n    return {'a': [1, 22]}  # é\n"
    assert plain.encode(text).ids == wrapped(text)["input_ids"]
    assert wrapped.decode(wrapped(text)["input_ids"]) == text


def test_exporting_again_replaces_the_files(exported: Path, corpus_folder: Path) -> None:
    before = (exported / "tokenizer.json").read_bytes()
    (exported / "README.md").write_text("old")
    export_model(RunFolder(exported.parent / "run"), corpus_folder, exported, samples=2)
    assert (exported / "README.md").read_text() != "old"
    assert (exported / "tokenizer.json").read_bytes() == before


def test_a_run_without_checkpoint_cannot_be_exported(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        export_model(RunFolder(tmp_path), corpus_folder, tmp_path / "model")
