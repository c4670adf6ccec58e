from __future__ import annotations

import json
import os
import shutil
import signal
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from click.testing import Result
from safetensors.torch import load_file
from tokenizers import Tokenizer
from typer.testing import CliRunner

from inference.checkpoints.checkpoint import open_checkpoint
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from midfill.commands import app
from midfill_lab.recipe.to_gguf import write_gguf
from midfill_lab.training.options import Quantization
from midfill_lab.training.trainer import WEIGHTS, RunFolder
from protocol.errors import BadInput
from protocol.messages import CompletionRequest, Prompt
from tests.inference.conftest import VOCABULARIES
from tests.inference.smollm import write_smollm
from tests.inference.tiny import write_checkpoint

REQUEST = CompletionRequest("a.py", Prompt("def first(limit):\n    return limit\n\n", "\n", "def sec"), 4)
SMALL = ("--window", "64", "--batch-size", "4", "--evaluation-samples", "4", "--cpu")
SCRATCH = (*SMALL, "--vocabulary-size", "400", "--num-hidden-layers", "1", "--hidden-size", "64")


def run(*arguments: str | Path) -> Result:
    torch.set_num_threads(1)
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def trained(*arguments: str | Path) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def refusal(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, BadInput), result.output
    return str(result.exception)


def losses(output: Path) -> list[dict[str, float]]:
    """Of every time that the held-out losses were measured: nats a byte by format and kind."""
    records: list[dict[str, Any]] = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [
        {f"{loss['layout']} {kind}": loss[kind] for loss in record["held_out"] for kind in ("whole", "fragments")}
        for record in records
        if "held_out" in record
    ]


def assert_answers(model: Path) -> None:
    engine = load_engine(EngineOptions(str(model), device="cpu", threads=1))
    assert engine.complete(REQUEST).usage.forwards >= 1
    engine.close()


def write_deepseek(folder: Path) -> Path:
    """A random model of a few thousand weights beside its embeddings, with DeepSeek Coder's vocabulary."""
    source = VOCABULARIES / "deepseek-coder"
    if not source.is_dir():
        pytest.skip(f"the vocabulary {source} is not here")
    size = max(Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab().values()) + 1
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=size, num_key_value_heads=1, tie_word_embeddings=True, **shape)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    for file in source.iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


def test_from_scratch_learns_and_makes_a_model_that_the_engine_runs(project: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    told = trained(project, "--output", output, *SCRATCH, "--steps", "25").output
    assert "Training on 9 files" in told
    assert "2 not text, 1 secret" in told
    assert "25 steps of 4 windows of 64 tokens" in told
    before, after = losses(output)
    assert all(after[name] < 0.95 * before[name] for name in before)
    assert_answers(output / "model")
    card = (output / "model" / "README.md").read_text()
    assert f"| EFIM | {before['efim whole']:.3f} | {after['efim whole']:.3f} |" in card
    assert "logo.png" in (output / "left-out.txt").read_text()


def test_what_ctrl_c_has_stopped_goes_on_as_if_nothing_had_happened(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (*SCRATCH, "--steps", "5")
    trained(project, "--output", tmp_path / "whole", *arguments)
    log = RunFolder.append_log

    def interrupted(folder: RunFolder, record: dict[str, Any]) -> None:
        log(folder, record)
        if record.get("progress", {}).get("step") == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_log", interrupted)
        stopped = run(project, "--output", tmp_path / "stopped", *arguments)
    assert stopped.exit_code == 130
    assert "Stopped and saved. To continue" in stopped.output
    assert not (tmp_path / "stopped" / "model").exists()
    assert "Continuing after step 3" in trained(project, "--output", tmp_path / "stopped", *arguments).output
    weights = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "stopped")]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lora"], "--lora needs --from MODEL"),
        (["--from", "tiny", "--lora", "--muon-lr", "1e-3"], "--muon-lr does not work with --lora"),
        (["--from", "tiny", "--window", "100000"], "--window 100000 is too long: the context of tiny is 4096 tokens"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_read(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    assert message in refusal(tmp_path / "missing", "--output", tmp_path / "run", *arguments)
    assert not (tmp_path / "run").exists()


def test_adapters_learn_and_are_merged_into_the_model(project: Path, tmp_path: Path) -> None:
    start, output = write_deepseek(tmp_path / "deepseek"), tmp_path / "run"
    small = (*SMALL, "--window", "32", "--steps", "15", "--mixed-precision", "no")
    arguments = ("--from", start, "--lora", "--lora-rank", "4", "--lora-dropout", "0.1", "--lr", "0.03", *small)
    told = trained(project, "--output", output, *arguments).output
    assert "learn (LoRA)" in told
    before, after = losses(output)
    assert all(after[name] < before[name] for name in before)
    base, merged = (load_file(folder / "model.safetensors") for folder in (start, output / "model"))
    changed = {name for name in base if not base[name].equal(merged[name])}
    assert changed == {name for name in base if "_proj.weight" in name}
    checkpoint = RunFolder(output).latest()
    assert checkpoint is not None
    assert all("lora_" in name for name in load_file(checkpoint / WEIGHTS))
    assert (output / "adapter" / "adapter_config.json").is_file()
    assert_answers(output / "model")
    fim = open_checkpoint(output / "model", "model").tokenizer().format
    assert (fim.name, fim.fragments_suffice) == ("deepseek-coder", False)


def test_a_gguf_file_is_trained_from_its_dequantized_weights(project: Path, tmp_path: Path) -> None:
    file, output = tmp_path / "model.gguf", tmp_path / "run"
    model = write_smollm(tmp_path)
    (model / "config.json").write_text(
        json.dumps(json.loads((model / "config.json").read_text()) | {"midfill": {"fragments_suffice": True}})
    )
    write_gguf(str(model), file, Quantization("q8_0", "q8_0"))
    arguments = ("--output", output, "--from", file, *SMALL, "--window", "32", "--mixed-precision", "no")
    trained(project, *arguments, "--steps", "1")
    weights = load_file(output / "base" / "model.safetensors")
    assert (weights["model.norm.weight"] == 1).all()
    assert open_checkpoint(output / "model", "model").tokenizer().format.fragments_suffice  # as of the file
    assert "Continuing after step 1" in trained(project, *arguments, "--steps", "2").output


def test_a_whole_checkpoint_learns_the_same_in_one_part_and_in_several(project: Path, tmp_path: Path) -> None:
    start = write_checkpoint(tmp_path / "llama", rope_theta=20_000.0)
    arguments = ("--from", start, *SMALL, "--steps", "12", "--lr", "3e-3", "--mixed-precision", "no")
    trained(project, "--output", tmp_path / "one", *arguments)
    trained(project, "--output", tmp_path / "several", *arguments, "--gradient-accumulation-steps", "2")
    before, after = losses(tmp_path / "one")
    assert all(after[name] < before[name] for name in before)
    assert losses(tmp_path / "several")[1] == pytest.approx(after, rel=1e-3)
    assert_answers(tmp_path / "several" / "model")


def test_markers_are_added_where_that_is_asked_for(project: Path, tmp_path: Path) -> None:
    start = write_checkpoint(tmp_path / "llama")
    definition = json.loads((start / "tokenizer.json").read_text())
    definition["added_tokens"] = []
    (start / "tokenizer.json").write_text(json.dumps(definition))
    arguments = (project, "--from", start, "--output", tmp_path / "run", *SMALL, "--steps", "1")
    assert "--add-fim-markers" in refusal(*arguments)
    trained(*arguments, "--add-fim-markers")
    assert_answers(tmp_path / "run" / "model")


def test_a_run_is_not_mixed_with_another(project: Path, tmp_path: Path) -> None:
    arguments = ("--output", tmp_path / "run", *SCRATCH, "--steps", "1")
    trained(project, *arguments)
    assert "was started with folders" in refusal(project / "src", *arguments)
    assert "lr = 0.004, not 0.1" in refusal(project, *arguments, "--lr", "0.1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--fim-rate", "2"), "fim_rate is 2.0"),
        (("--from", "/no/such/model"), "no model '/no/such/model'"),
        (("--vocabulary-size", "9000"), "fewer than the 9000 requested"),
        (("--window", "8192", "--vocabulary-size", "400"), "window is 8192"),
    ],
)
def test_what_cannot_be_done_is_refused(project: Path, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    assert told in refusal(project, "--output", tmp_path / "run", "--cpu", *arguments)


def test_a_limit_of_hours_stops_and_the_same_command_goes_on(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (project, "--output", tmp_path / "run", *SCRATCH, "--steps", "4", "--hours", "1")
    now = count(step=1800.0)  # half an hour goes by between two looks at the clock
    monkeypatch.setattr("midfill_lab.training.run.time", SimpleNamespace(monotonic=lambda: next(now)))
    stopped = run(*arguments)
    assert stopped.exit_code == 130
    assert "To continue, run" in stopped.output
    assert not (tmp_path / "run" / "model").exists()
    monkeypatch.undo()
    trained(*arguments)
    assert (tmp_path / "run" / "model" / "config.json").is_file()


def test_a_collected_corpus_is_trained_on_as_it_is(project: Path, tmp_path: Path) -> None:
    trained(project, "--output", tmp_path / "first", *SCRATCH, "--steps", "1")
    corpus = tmp_path / "first" / "corpus"
    told = trained(corpus, "--output", tmp_path / "second", *SCRATCH, "--steps", "1", "--middles-only").output
    assert "Training on 9 files" in told
    for name in ("train.bin", "held_out.json", "manifest.json", "tokenizer.json"):
        assert (tmp_path / "second" / "corpus" / name).read_bytes() == (corpus / name).read_bytes()


def test_types_to_train_through_are_checked(project: Path, tmp_path: Path) -> None:
    arguments = (project, "--output", tmp_path / "run", *SCRATCH)
    assert "MATRICES:EMBEDDINGS" in refusal(*arguments, "--quantization", "q4_0")
    assert "q3_k" in refusal(*arguments, "--quantization", "q4_0:q3_k")
