from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from midfill_lab.training.model import build_model, start_model
from midfill_lab.training.options import LoraOptions
from midfill_lab.training.publish import ADAPTER, add_to_json, publish, replace_files, write_model
from midfill_lab.training.vocabulary import Vocabulary, load_vocabulary
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


CARD = "# a card"
IDS = torch.tensor([[5, 6, 7, 8]])


@torch.inference_mode()
def logits(model: torch.nn.Module) -> torch.Tensor:
    torch.nn.Module.eval(model)
    found: torch.Tensor = model(input_ids=IDS).logits
    return found.float()


def test_a_new_model_is_whole_and_says_what_it_needs(vocabulary: Vocabulary, corpus_folder: Path, tmp_path: Path) -> None:
    model = start_model(OPTIONS, vocabulary)
    tokenizer, output = corpus_folder / "tokenizer.json", tmp_path / "run" / "model"
    publish(model, vocabulary, tokenizer, OPTIONS, output, CARD)
    config = json.loads((output / "config.json").read_text())
    expected = {"fim_format": vocabulary.format.name, "fragments_suffice": False}
    assert config["midfill"] == expected
    assert (output / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    assert (output / "README.md").read_text() == CARD
    loaded = AutoModelForCausalLM.from_pretrained(output, dtype="auto")
    assert loaded.dtype == torch.bfloat16
    assert torch.allclose(logits(loaded), logits(model), atol=1e-2)
    assert [path.name for path in output.parent.iterdir()] == ["model"]


def test_a_checkpoint_keeps_its_precision_and_its_tokenizer_files(tiny_checkpoint: Path, tmp_path: Path) -> None:
    options = replace(OPTIONS, start=str(tiny_checkpoint), mixed_precision="no")
    tokenizer = tiny_checkpoint / "tokenizer.json"
    vocabulary = load_vocabulary(tokenizer)
    publish(start_model(options, vocabulary), vocabulary, tokenizer, options, tmp_path / "model", CARD)
    before = AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype="auto")
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto")
    assert after.dtype == before.dtype
    assert torch.equal(logits(after), logits(before))


@pytest.mark.parametrize(("told", "suffice"), [({}, False), ({"midfill": {"fragments_suffice": True}}, True)])
def test_fragments_suffice_only_for_what_goes_on_from_such_a_checkpoint(
    tiny_checkpoint: Path, tmp_path: Path, told: dict[str, object], suffice: bool
) -> None:
    start = shutil.copytree(tiny_checkpoint, tmp_path / "start")
    add_to_json(start / "config.json", told)
    options = replace(OPTIONS, start=str(start), mixed_precision="no")
    vocabulary = load_vocabulary(start / "tokenizer.json")
    publish(start_model(options, vocabulary), vocabulary, start / "tokenizer.json", options, tmp_path / "model", CARD)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["midfill"]["fragments_suffice"] is suffice


def test_adapters_are_merged_and_kept_beside(tiny_checkpoint: Path, tmp_path: Path) -> None:
    options = replace(OPTIONS, start=str(tiny_checkpoint), mixed_precision="no", lora=LoraOptions(rank=2))
    vocabulary = load_vocabulary(tiny_checkpoint / "tokenizer.json")
    model = start_model(options, vocabulary)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.5)
    expected = logits(model)
    publish(model, vocabulary, tiny_checkpoint / "tokenizer.json", options, tmp_path / "model", CARD)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    before = AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    assert torch.allclose(logits(merged), expected, atol=1e-3)
    assert not torch.allclose(logits(merged), logits(before), atol=1e-3)
    assert (tmp_path / ADAPTER / "adapter_config.json").is_file()
