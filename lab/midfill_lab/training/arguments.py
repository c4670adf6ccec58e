"""The options of `midfill train`, and the training that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from inference.text.fim import AUTO
from midfill_lab.training.options import (
    ExampleOptions,
    LoraOptions,
    ModelSize,
    OptionError,
    Precision,
    Quantization,
    Stage,
    TrainingOptions,
    parse_stages,
)

HEAD_DIM = 64
SCRATCH_LR, FULL_LR, LORA_LR = 4e-3, 5e-5, 2e-4
WARMUP_STEPS = 20
"""With --minutes: the first step may take a good part of a short run, as it compiles the model."""


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """The options of `midfill train`."""

    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="Model to start from: bundled, tiny, a folder, a GGUF file, a name on the hub. Default: from scratch."
        ),
    ] = None
    decay: Annotated[float, typer.Option(help="Share of the run, at its end, in which the learning rate falls.")] = (
        TrainingOptions.decay
    )
    weight_decay: Annotated[float, typer.Option(help="Weight decay of the matrices.")] = TrainingOptions.weight_decay
    fim_rate: Annotated[float, typer.Option(help="Share of fill-in-the-middle examples.")] = ExampleOptions.fim_rate
    efim_rate: Annotated[float, typer.Option(help="Share of EFIM among them.")] = ExampleOptions.efim_rate
    spm_rate: Annotated[float, typer.Option(help="Share of SPM among them; the rest is PSM.")] = ExampleOptions.spm_rate
    fragment_rate: Annotated[float, typer.Option(help="Share of examples split in fragments.")] = ExampleOptions.fragment_rate
    further_cuts_rate: Annotated[
        float, typer.Option(help="Share of the split middles that are cut at more places than the cursor.")
    ] = ExampleOptions.further_cuts_rate
    shortest_fragment: Annotated[int, typer.Option(help="Characters of a fragment, at least.")] = ExampleOptions.shortest_fragment
    longest_fragment: Annotated[int, typer.Option(help="Characters of a fragment, at most.")] = ExampleOptions.longest_fragment
    piece_rate: Annotated[float, typer.Option(help="Probability of each further cut of a text.")] = ExampleOptions.piece_rate
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = TrainingOptions.checkpoint_minutes
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0
    change_recipe: Annotated[
        bool, typer.Option("--change-recipe", help="Go on with a run under other options than it was started with.")
    ] = False
    lora: Annotated[bool, typer.Option("--lora", help="Train low-rank adapters instead of all weights; needs --from.")] = False
    lora_rank: Annotated[int, typer.Option(help="Rank of the adapters.")] = LoraOptions.rank
    lora_alpha: Annotated[float, typer.Option(help="Scale of the adapters, times the rank.")] = LoraOptions.alpha
    lora_dropout: Annotated[float, typer.Option(help="Dropout before the adapters.")] = LoraOptions.dropout
    target_modules: Annotated[str, typer.Option(help="Layers with an adapter: names, or all-linear.")] = "all-linear"
    train_markers: Annotated[
        bool, typer.Option("--train-markers", help="With --lora: train the embeddings of the FIM markers too.")
    ] = False
    epochs: Annotated[float, typer.Option(help="Passes over the data.")] = 1.0
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps, instead of epochs.")] = None
    hours: Annotated[
        float | None, typer.Option(min=0.001, help="Stop after so many hours; the same command goes on. [default: no]")
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Length of the run, instead of epochs: the rate falls to 0 by then. [default: no]"),
    ] = None
    window: Annotated[int, typer.Option(help="Tokens in a training window.")] = 512
    stages: Annotated[str | None, typer.Option(help="Windows of growing length instead of one: WINDOW:SHARE,... of the run.")] = (
        None
    )
    batch_size: Annotated[int, typer.Option(min=1, help="Windows per step.")] = 16
    gradient_accumulation_steps: Annotated[int, typer.Option(min=1, help="Number of parts in which a step is computed.")] = 1
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Recompute activations to save memory.")
    ] = False
    lr: Annotated[
        float | None,
        typer.Option(help=f"Peak learning rate. [default: {SCRATCH_LR}; with --from {FULL_LR}, with --lora {LORA_LR}]"),
    ] = None
    muon_lr: Annotated[
        float | None,
        typer.Option(
            help="Peak learning rate of Muon, for the matrices; --lr is then that of the rest. "
            "[default: --lr from scratch, no Muon with --from or fp16]"
        ),
    ] = None
    warmup: Annotated[float, typer.Option(help="Share of the run in which the learning rate grows.")] = TrainingOptions.warmup
    warmup_steps: Annotated[
        int | None, typer.Option(min=0, help=f"Steps in which it grows, instead. [default: none; with --minutes {WARMUP_STEPS}]")
    ] = None
    window_processes: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that make windows; 0: a thread. [default: a thread; with a GPU, cores - 2]"),
    ] = None
    snippet_rate: Annotated[float, typer.Option(help="Share of fill-in-the-middle examples with snippets of other files.")] = (
        ExampleOptions.snippet_rate
    )
    later_name_rate: Annotated[
        float, typer.Option(help="Share of them whose middle is a line that introduces a name of the suffix.")
    ] = ExampleOptions.later_name_rate
    symbol_rate: Annotated[
        float, typer.Option(help="Share of them that begin at a name of another file, with its definition in front.")
    ] = ExampleOptions.symbol_rate
    middles_only: Annotated[
        bool, typer.Option("--middles-only", help="Learn middles and left-to-right text, not the prompts.")
    ] = False
    mixed_precision: Annotated[
        Precision | None, typer.Option(help="Mixed precision. [default: what suits the device]", show_default=False)
    ] = None
    pure_bf16: Annotated[
        bool, typer.Option("--pure-bf16", help="Compute in bf16 alone, with float32 masters of the weights.")
    ] = False
    quantization: Annotated[
        str | None, typer.Option(help="GGUF types to train through at the end: MATRICES:EMBEDDINGS, such as q4_1:q5_1.")
    ] = None
    quantized_share: Annotated[float, typer.Option(help="Share of the run that trains through them.")] = (
        TrainingOptions.quantized_share
    )
    cpu: Annotated[bool, typer.Option("--cpu", help="Use no GPU.")] = False
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model: faster steps after some minutes.")] = False
    evaluation_minutes: Annotated[float, typer.Option(help="Least minutes between held-out measurements.")] = 0.0
    held_out: Annotated[float, typer.Option(min=0, max=0.5, help="Share of the files to hold out.")] = 0.05
    evaluation_samples: Annotated[int, typer.Option(min=1, help="Held-out examples to measure on.")] = 32
    fim_format: Annotated[str, typer.Option(help="FIM format of the model, if it is not recognised.")] = AUTO
    add_fim_markers: Annotated[
        bool, typer.Option("--add-fim-markers", help="Add fill-in-the-middle markers to a tokenizer without them.")
    ] = False
    vocabulary_size: Annotated[int, typer.Option(help="From scratch: tokens in the vocabulary.")] = 8192
    num_hidden_layers: Annotated[int, typer.Option(min=1, help="From scratch: layers.")] = ModelSize.layers
    hidden_size: Annotated[int, typer.Option(min=HEAD_DIM, help="From scratch: width.")] = ModelSize.hidden

    def options(self) -> TrainingOptions:
        """The training that these ask for, for a step; `train` works out how many. OptionError for a bad value."""
        if self.lora and self.start is None:
            raise OptionError("--lora needs --from MODEL: adapters are trained on a checkpoint")
        if self.lora and self.muon_lr is not None:
            raise OptionError("--muon-lr does not work with --lora: AdamW trains adapters")
        if self.minutes is not None and self.steps is not None:
            raise OptionError("--minutes and --steps do not work together: each says how long the run is")
        peak = self.lr or (SCRATCH_LR if self.start is None else LORA_LR if self.lora else FULL_LR)
        stages = (Stage(self.window, 1.0),) if self.stages is None else parse_stages(self.stages)
        masters = self.pure_bf16 or self.quantization
        precision = None if masters else self.mixed_precision or _precision(self.start, self.cpu)
        default_muon_lr = peak if self.start is None and precision != "fp16" else None
        warmup_steps = 0 if self.minutes is None else WARMUP_STEPS
        return self._training(
            {
                "context_fragment_rate": self.fragment_rate * ExampleOptions.context_fragment_rate,
                "prompt_loss": not self.middles_only,
            },
            shape=_shape(self.num_hidden_layers, self.hidden_size),
            lora=self._adapters(),
            mixed_precision=precision,
            quantization=_quantization(self.quantization),
            stages=stages,
            batch_tokens=self.batch_size * stages[0].window,
            lr=peak,
            muon_lr=default_muon_lr if self.muon_lr is None else self.muon_lr,
            max_steps=self.steps or 1,
            warmup_steps=warmup_steps if self.warmup_steps is None else self.warmup_steps,
        )

    def _training(self, examples: Mapping[str, Any], **others: Any) -> TrainingOptions:
        """The options of the same names, but for `examples`, of `ExampleOptions`, and `others`."""
        cuts = ExampleOptions(**{**self._shared_with(ExampleOptions), **examples})
        return TrainingOptions(**{**self._shared_with(TrainingOptions), "examples": cuts, **others})

    def _shared_with(self, kind: type[ExampleOptions | TrainingOptions]) -> dict[str, Any]:
        shared = {field.name for field in fields(self)} & {field.name for field in fields(kind)}
        return {name: getattr(self, name) for name in shared}

    def _adapters(self) -> LoraOptions | None:
        targets = tuple(self.target_modules.split(","))
        adapters = (self.lora_rank, self.lora_alpha, self.lora_dropout, targets, self.train_markers)
        return LoraOptions(*adapters) if self.lora else None


def _shape(layers: int, hidden: int) -> ModelSize:
    """A Llama of the tiny model's proportions."""
    ratio = ModelSize.intermediate / ModelSize.hidden
    return ModelSize(
        layers=layers,
        hidden=hidden,
        intermediate=round(ratio * hidden / HEAD_DIM) * HEAD_DIM,
        heads=max(1, hidden // HEAD_DIM),
        head_dim=HEAD_DIM,
    )


def _precision(start: str | None, cpu: bool) -> Precision | None:
    """The precision that is fast on the device; None from scratch means pure bf16 with master weights."""
    from midfill_lab.training.machine import choose_device, multiplies_bf16

    if not multiplies_bf16(choose_device(cpu=cpu)):
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
