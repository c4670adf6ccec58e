"""The command `midfill train`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from inference.text.fim import AUTO
from inference.training.errors import OptionError
from inference.training.options import (
    ExampleOptions,
    LoraOptions,
    ModelSize,
    Precision,
    Quantization,
    Stage,
    TrainingOptions,
    parse_stages,
)

STOPPED = 130  # as a shell has it for what Ctrl-C ended
HEAD_DIM = 64
SCRATCH_LR, FULL_LR, LORA_LR = 4e-3, 5e-5, 2e-4

_EXAMPLES, _LORA, _SHAPE, _RUN = ExampleOptions(), LoraOptions(), ModelSize(), TrainingOptions(max_steps=1)


def train_command(
    folders: Annotated[
        list[Path], typer.Argument(help="Source files, folders of them, or a collected corpus.", show_default=False)
    ],
    output: Annotated[Path, typer.Option(help="Folder for data, checkpoints, log and model.")],
    start: Annotated[
        str | None, typer.Option("--from", help="Model to start from: bundled, a folder, or a name on the hub.")
    ] = None,
    lora: Annotated[
        bool, typer.Option("--lora", help="Train low-rank adapters instead of all weights; needs --from.")
    ] = False,
    lora_rank: Annotated[int, typer.Option(help="Rank of the adapters.")] = _LORA.rank,
    lora_alpha: Annotated[float, typer.Option(help="Scale of the adapters, times the rank.")] = _LORA.alpha,
    lora_dropout: Annotated[float, typer.Option(help="Dropout before the adapters.")] = _LORA.dropout,
    target_modules: Annotated[str, typer.Option(help="Layers with an adapter: names, or all-linear.")] = "all-linear",
    train_markers: Annotated[
        bool, typer.Option("--train-markers", help="With --lora: train the embeddings of the FIM markers too.")
    ] = False,
    epochs: Annotated[float, typer.Option(help="Passes over the data.")] = 1.0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps, instead of epochs.")] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.001, help="Stop after so many hours; the same command goes on. [default: no]")
    ] = None,
    window: Annotated[int, typer.Option(help="Tokens in a training window.")] = 512,
    stages: Annotated[
        str | None, typer.Option(help="Windows of growing length instead of one: WINDOW:SHARE,... of the run.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Windows per step, over all processes.")] = 16,
    gradient_accumulation_steps: Annotated[
        int, typer.Option(min=1, help="Number of parts in which each process computes its share of a step.")
    ] = 1,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Recompute activations to save memory.")
    ] = False,
    lr: Annotated[
        float | None,
        typer.Option(
            help=f"Peak learning rate. [default: {SCRATCH_LR} from scratch, {FULL_LR}, {LORA_LR} with --lora]"
        ),
    ] = None,
    warmup: Annotated[float, typer.Option(help="Share of the run in which the learning rate grows.")] = 0.03,
    decay: Annotated[
        float, typer.Option(help="Share of the run, at its end, in which the learning rate falls.")
    ] = _RUN.decay,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of the matrices.")] = _RUN.weight_decay,
    fim_rate: Annotated[float, typer.Option(help="Share of fill-in-the-middle examples.")] = _EXAMPLES.fim_rate,
    efim_rate: Annotated[float, typer.Option(help="Share of EFIM among them.")] = _EXAMPLES.efim_rate,
    spm_rate: Annotated[float, typer.Option(help="Share of SPM among them; the rest is PSM.")] = _EXAMPLES.spm_rate,
    fragment_rate: Annotated[
        float, typer.Option(help="Share of examples split in fragments.")
    ] = _EXAMPLES.fragment_rate,
    snippet_rate: Annotated[
        float, typer.Option(help="Share of fill-in-the-middle examples with snippets of other files.")
    ] = _EXAMPLES.snippet_rate,
    piece_rate: Annotated[float, typer.Option(help="How readily texts are cut smaller.")] = _EXAMPLES.piece_rate,
    middles_only: Annotated[
        bool, typer.Option("--middles-only", help="Learn middles and left-to-right text, not the prompts.")
    ] = False,
    mixed_precision: Annotated[
        Precision | None,
        typer.Option(help="Mixed precision, as in accelerate. [default: what suits the device]", show_default=False),
    ] = None,
    pure_bf16: Annotated[
        bool, typer.Option("--pure-bf16", help="Compute in bf16 alone, with float32 masters of the weights.")
    ] = False,
    quantization: Annotated[
        str | None,
        typer.Option(help="GGUF types to train through at the end: MATRICES:EMBEDDINGS, such as q4_1:q5_1."),
    ] = None,
    quantized_share: Annotated[
        float, typer.Option(help="Share of the run that trains through them.")
    ] = _RUN.quantized_share,
    processes: Annotated[int, typer.Option(min=1, help="Number of processes, each with its own device.")] = 1,
    cpu: Annotated[bool, typer.Option("--cpu", help="Use no GPU.")] = False,
    compile_model: Annotated[
        bool, typer.Option("--compile", help="Compile the model: faster steps after some minutes.")
    ] = False,
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = _RUN.checkpoint_minutes,
    evaluation_minutes: Annotated[float, typer.Option(help="Least minutes between held-out measurements.")] = 0.0,
    held_out: Annotated[float, typer.Option(min=0, max=0.5, help="Share of the files to hold out.")] = 0.05,
    evaluation_samples: Annotated[int, typer.Option(min=1, help="Held-out examples to measure on.")] = 32,
    fim_format: Annotated[str, typer.Option(help="FIM format of the model, if it is not recognised.")] = AUTO,
    add_fim_markers: Annotated[
        bool, typer.Option("--add-fim-markers", help="Add fill-in-the-middle markers to a tokenizer without them.")
    ] = False,
    vocabulary_size: Annotated[int, typer.Option(help="From scratch: tokens in the vocabulary.")] = 8192,
    num_hidden_layers: Annotated[int, typer.Option(min=1, help="From scratch: layers.")] = _SHAPE.layers,
    hidden_size: Annotated[int, typer.Option(min=HEAD_DIM, help="From scratch: width.")] = _SHAPE.hidden,
    change_recipe: Annotated[
        bool, typer.Option("--change-recipe", help="Go on with a run under other options than it was started with.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
) -> None:
    """Train a model with fragment tokenization on your own files.

    Trains a new model, or a checkpoint (--from), all of it or adapters (--lora). Ctrl-C finishes the step and saves;
    the same command continues the run. A second Ctrl-C ends it at once.
    """
    if lora and start is None:
        raise OptionError("--lora needs --from MODEL: adapters are trained on a checkpoint")
    # accelerate imports torchao if it is installed, which warns of kernels that training does not use.
    for library in ("torchao", "torch.utils._pytree"):
        logging.getLogger(library).setLevel(logging.ERROR)
    from midfill.train.data import DataOptions
    from midfill.train.run import Request, train

    examples = ExampleOptions(
        fim_rate=fim_rate,
        efim_rate=efim_rate,
        spm_rate=spm_rate,
        fragment_rate=fragment_rate,
        context_fragment_rate=fragment_rate * _EXAMPLES.context_fragment_rate,
        snippet_rate=snippet_rate,
        piece_rate=piece_rate,
        prompt_loss=not middles_only,
    )
    targets = tuple(target_modules.split(","))
    adapters = LoraOptions(lora_rank, lora_alpha, lora_dropout, targets, train_markers) if lora else None
    peak = lr or (SCRATCH_LR if start is None else LORA_LR if lora else FULL_LR)
    lengths = (Stage(window, 1.0),) if stages is None else parse_stages(stages)
    training = TrainingOptions(
        shape=_shape(num_hidden_layers, hidden_size),
        examples=examples,
        start=start,
        lora=adapters,
        mixed_precision=None if pure_bf16 or quantization else mixed_precision or _precision(start, cpu),
        quantization=_quantization(quantization),
        quantized_share=quantized_share,
        stages=lengths,
        batch_tokens=batch_size * lengths[0].window,
        gradient_accumulation_steps=gradient_accumulation_steps,
        gradient_checkpointing=gradient_checkpointing,
        lr=peak,
        muon_lr=peak if start is None else None,
        weight_decay=weight_decay,
        warmup=warmup,
        decay=decay,
        max_steps=steps or 1,
        checkpoint_minutes=checkpoint_minutes,
        compile=compile_model,
        seed=seed,
    )
    places = tuple(str(folder.resolve()) for folder in folders)
    data = DataOptions(places, held_out, start, fim_format, add_fim_markers, vocabulary_size)
    request = Request(
        output=output.resolve(),
        data=data,
        training=training,
        steps=steps,
        epochs=epochs,
        evaluation_samples=evaluation_samples,
        evaluation_minutes=evaluation_minutes,
        hours=hours,
        change_recipe=change_recipe,
        processes=processes,
        cpu=cpu,
    )
    if not train(request, Console()):
        raise typer.Exit(STOPPED)


def _shape(layers: int, hidden: int) -> ModelSize:
    """A Llama of the bundled model's proportions."""
    ratio = _SHAPE.intermediate / _SHAPE.hidden
    return ModelSize(
        layers=layers,
        hidden=hidden,
        intermediate=round(ratio * hidden / HEAD_DIM) * HEAD_DIM,
        heads=max(1, hidden // HEAD_DIM),
        head_dim=HEAD_DIM,
    )


def _precision(start: str | None, cpu: bool) -> Precision | None:
    """The precision that is fast on the device; None from scratch means pure bf16 with master weights."""
    import torch

    from inference.training.machine import multiplies_bf16

    device = torch.device("cpu") if cpu else torch.accelerator.current_accelerator() or torch.device("cpu")
    if not multiplies_bf16(device):
        return "no"
    return None if start is None else "bf16"


def _quantization(text: str | None) -> Quantization | None:
    """The types of `MATRICES:EMBEDDINGS`; OptionError for another form."""
    if text is None:
        return None
    types = text.split(":")
    if len(types) != 2:
        raise OptionError(f"--quantization {text} is not of the form MATRICES:EMBEDDINGS")
    return Quantization(*types)
