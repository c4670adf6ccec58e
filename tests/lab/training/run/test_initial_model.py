from __future__ import annotations

import sys
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from midfill_lab.training.corpus.vocabulary import Vocabulary, load_vocabulary
from midfill_lab.training.errors import OptionError
from midfill_lab.training.options import LoraOptions
from midfill_lab.training.run.batches import Batch
from midfill_lab.training.run.initial_model import start_model
from midfill_lab.training.run.modeling import token_loss
from protocol.errors import BadModel
from tests.lab.training.runs import OPTIONS

CONTINUED = replace(OPTIONS, mixed_precision="no", muon_lr=None)


@pytest.fixture(scope="session")
def known(tiny_checkpoint: Path) -> Vocabulary:
    """The vocabulary of the checkpoint that runs start from."""
    return load_vocabulary(tiny_checkpoint / "tokenizer.json")


def test_a_new_model_has_the_shape_and_the_vocabulary(vocabulary: Vocabulary) -> None:
    model = start_model(OPTIONS, vocabulary)
    assert isinstance(model, LlamaForCausalLM)
    assert model.config.hidden_size == OPTIONS.shape.hidden
    assert model.get_input_embeddings().weight.shape == (vocabulary.size, OPTIONS.shape.hidden)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_checkpoint_goes_on_with_its_own_weights_in_float32(tiny_checkpoint: Path, known: Vocabulary) -> None:
    model = start_model(replace(CONTINUED, start=str(tiny_checkpoint)), known)
    theirs = LlamaForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    ours = dict(model.named_parameters())
    assert model.training
    for name, weight in theirs.named_parameters():
        assert ours[name].dtype == torch.float32
        assert torch.equal(ours[name], weight)


def test_tokens_that_the_checkpoint_has_no_room_for_get_some(tiny_checkpoint: Path, known: Vocabulary) -> None:
    larger = copy(known)
    larger.size += 1000
    model = start_model(replace(CONTINUED, start=str(tiny_checkpoint)), larger)
    assert isinstance(model, PreTrainedModel)
    embeddings = model.get_input_embeddings()
    assert isinstance(embeddings, torch.nn.Embedding)
    assert embeddings.num_embeddings == larger.size


def test_adapters_alone_learn(tiny_checkpoint: Path, known: Vocabulary) -> None:
    options = replace(CONTINUED, start=str(tiny_checkpoint), lora=LoraOptions(rank=2), mixed_precision="bf16")
    model = start_model(options, known)
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert learning
    assert all("lora_" in name for name in learning)
    frozen = {weight.dtype for name, weight in model.named_parameters() if name not in learning}
    assert torch.bfloat16 in frozen


def test_beside_adapters_the_rows_of_the_markers_can_learn(tiny_checkpoint: Path, known: Vocabulary) -> None:
    lora = LoraOptions(rank=2, train_markers=True)
    model = start_model(replace(CONTINUED, start=str(tiny_checkpoint), lora=lora), known)
    learning = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    rows = [weight for name, weight in learning.items() if "lora_" not in name]
    assert sum(weight.numel() for weight in rows) == 3 * model.config.hidden_size
    ids = torch.tensor([[known.markers.prefix, 1, known.markers.suffix, 2, known.markers.middle or 0, 3]])
    token_loss(model, Batch.of_rows(ids.tolist(), [[True] * 6])).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in rows)


def test_layers_that_are_not_there_are_named(tiny_checkpoint: Path, known: Vocabulary) -> None:
    lora = LoraOptions(target_modules=("no_such_layer",))
    with pytest.raises(OptionError, match="no adapters on no_such_layer"):
        start_model(replace(CONTINUED, start=str(tiny_checkpoint), lora=lora), known)


def test_without_peft_the_command_that_installs_it_is_told(
    tiny_checkpoint: Path, known: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(OptionError, match=r"install peft>=0.17"):
        start_model(replace(CONTINUED, start=str(tiny_checkpoint), lora=LoraOptions()), known)


def test_a_checkpoint_that_is_not_there_is_an_error(known: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(BadModel):
        start_model(replace(CONTINUED, start=str(tmp_path / "missing")), known)
