"""The options of a training run, which of them must not change on resume, and the errors of training.

TrainingError
├── CorpusError        a corpus cannot be built or read
├── VocabularyError    a tokenizer is missing, or cannot be learned
├── OptionError        a training option is out of range or contradicts another
├── CheckpointError    a checkpoint cannot be resumed
└── TransferError      a folder cannot be packed, or restored from its parts

The errors are those of invalid input; those of models are `BadModel`.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from protocol.errors import BadInput

Precision = Literal["no", "bf16", "fp16"]


BITS = {"q4_0": 4.5, "q4_1": 5.0, "q5_0": 5.5, "q5_1": 6.0, "q8_0": 8.5}
"""Bits per weight of GGUF types with groups of 32 columns, scales included."""


class TrainingError(BadInput):
    """Base of all; the command line prints it without a traceback."""


class CorpusError(TrainingError):
    """A corpus cannot be built from, or read from, the given place."""


class VocabularyError(TrainingError):
    """A tokenizer cannot be used for training."""


class OptionError(TrainingError):
    """A training option has an invalid value."""


class CheckpointError(TrainingError):
    """A checkpoint does not fit the run that resumes it."""


class TransferError(TrainingError):
    """A folder cannot be packed into parts, or its parts are incomplete or damaged."""


@dataclass(frozen=True)
class ModelSize:
    """The shape of a Llama model; the defaults give 10.5M parameters with tied embeddings."""

    layers: int = 8
    hidden: int = 320
    intermediate: int = 768
    heads: int = 5
    kv_heads: int = 1
    head_dim: int = 64
    positions: int = 4096
    rope_theta: float = 100_000.0


@dataclass(frozen=True)
class ExampleOptions:
    """How documents are cut into examples.

    Attributes:
        fim_rate: share of examples that are fill-in-the-middle; the others are left to right.
        efim_rate: share of the fill-in-the-middle examples in the EFIM layout: the prefix ends at an anchor, and the
            middle begins with the increment.
        spm_rate: share of them in the SPM layout. In SPM, and in PSM, which gets the rest, the prefix ends at the
            cursor.
        fragment_rate: share of examples whose middle, or whose text if they have none, is split into fragments before
            tokenization.
        context_fragment_rate: share of the fill-in-the-middle examples whose prefix and suffix are split too, if the
            loss counts them. Those of prompts are not, but every split trains the continuation of partial words.
        further_cuts_rate: share of the split middles that are cut at more places than the cursor, into fragments as
            long as those of other text.
        piece_rate: probability that a window's text is cut into smaller pieces, and then cut again. Smaller pieces
            yield more middles per window.
        shortest_fragment, longest_fragment: characters of fragments; log-uniform.
        open_end_rate: share of the fill-in-the-middle examples without a suffix, as at the end of a file.
        snippet_rate: share of the fill-in-the-middle examples with text of other files of the package in front:
            definitions of the names they use, similar lines, unrelated lines.
        later_name_rate: share of the fill-in-the-middle examples whose middle is a line that introduces a name of the
            suffix. A model cannot write it without the suffix, which other middles seldom need.
        symbol_rate: share of the fill-in-the-middle examples, where the text allows, whose middle begins with a name
            that another file of the package defines, with the definition in front.
        prompt_loss: whether the loss counts the tokens of prompts too, rather than only middles, their ends, and
            left-to-right text.
    """

    fim_rate: float = 0.85
    efim_rate: float = 0.6
    spm_rate: float = 0.15
    fragment_rate: float = 0.8
    context_fragment_rate: float = 0.4
    further_cuts_rate: float = 0.25
    piece_rate: float = 0.9
    shortest_fragment: int = 8
    longest_fragment: int = 512
    open_end_rate: float = 0.06
    snippet_rate: float = 0.2
    later_name_rate: float = 0.0
    symbol_rate: float = 0.0
    prompt_loss: bool = True

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _require(not name.endswith("_rate") or 0 <= value <= 1, name, value, "between 0 and 1")
        _require(self.efim_rate + self.spm_rate <= 1, "efim_rate + spm_rate", self.efim_rate + self.spm_rate, "at most 1")
        lengths = self.shortest_fragment, self.longest_fragment
        _require(1 <= lengths[0] <= lengths[1], "shortest and longest fragment", lengths, "at least 1, and in order")


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters beside a checkpoint's frozen weights (arXiv 2106.09685), by the names of peft.

    Attributes:
        target_modules: names of the layers with an adapter; "all-linear" means all but the output.
        train_markers: trains the embeddings of the FIM markers too, which the checkpoint may not know.
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: tuple[str, ...] = ("all-linear",)
    train_markers: bool = False

    def __post_init__(self) -> None:
        _require(self.rank >= 1, "rank", self.rank, "1 or more")
        _require(0 <= self.dropout < 1, "dropout", self.dropout, "between 0 and 1")


@dataclass(frozen=True)
class Quantization:
    """The GGUF types of a model's weights, by their names in lower case; norms and biases stay in float32."""

    matrices: str = "q4_0"
    embeddings: str = "q8_0"

    def __post_init__(self) -> None:
        for name in (self.matrices, self.embeddings):
            _require(name in BITS, "quantization", name, f"one of {', '.join(BITS)}")


@dataclass(frozen=True)
class Stage:
    """A part of the run: windows of `window` tokens for `share` of its length."""

    window: int
    share: float


@dataclass(frozen=True)
class TrainingOptions:
    """One training run.

    `warmup` and `decay` are shares of it, resumes included: of its `max_steps`, or of its `minutes`.

    Attributes:
        shape: of a new model.
        start: checkpoint that the run starts from, by name or folder; None starts with a new model.
        lora: trains adapters instead of the checkpoint's own weights.
        mixed_precision: "no", "bf16" or "fp16", over float32 weights; None computes in pure bf16, with
            float32 masters of the weights.
        lr: peak rate of AdamW (embeddings and norms, and matrices without Muon).
        muon_lr: peak rate of Muon (matrices), scaled to match AdamW's update size; None leaves all to AdamW.
        batch_tokens: tokens in one optimizer step; a multiple of every stage's window.
        gradient_accumulation_steps: number of parts in which a step is computed, to save memory.
        gradient_checkpointing: recomputes activations in the backward pass, to save memory.
        clip: largest norm of the gradient.
        quantization: the types that the weights are rounded to in the last part of the run (straight-through); None
            trains all of it in full precision.
        quantized_share: how long that part is.
        warmup_steps: steps in which the rate grows, instead of `warmup`; 0 for none.
        minutes: how long the run is, instead of `max_steps`: the rate falls by the clock, and reaches 0 in time.
        checkpoint_minutes: time between checkpoints; infinite for none, not even at the end.
        compile: compiles the model: each layer alone on a GPU, and all of it on a CPU.
        window_processes: processes that make windows; None for what suits the device, 0 for a thread.
    """

    shape: ModelSize = field(default_factory=ModelSize)
    examples: ExampleOptions = field(default_factory=ExampleOptions)
    start: str | None = None
    lora: LoraOptions | None = None
    mixed_precision: Precision | None = None
    stages: tuple[Stage, ...] = (Stage(512, 0.7), Stage(2048, 0.3))
    batch_tokens: int = 8192
    gradient_accumulation_steps: int = 1
    gradient_checkpointing: bool = False
    lr: float = 4e-3
    muon_lr: float | None = 4e-3
    weight_decay: float = 0.1
    clip: float = 1.0
    quantization: Quantization | None = None
    quantized_share: float = 0.2
    warmup: float = 0.03
    decay: float = 0.3
    warmup_steps: int = 0
    max_steps: int = 1
    minutes: float | None = None
    checkpoint_minutes: float = 5.0
    compile: bool = True
    seed: int = 0
    window_processes: int | None = None

    def __post_init__(self) -> None:
        _require(self.max_steps >= 1, "max_steps", self.max_steps, "1 or more")
        _require(abs(sum(stage.share for stage in self.stages) - 1) < 1e-6, "stages", self.stages, "shares of 1 in sum")
        for stage in self.stages:
            _require(self.batch_tokens % stage.window == 0, "batch_tokens", self.batch_tokens, f"n x {stage.window}")
            if self.start is None:
                most = self.shape.positions
                _require(stage.window <= most, "window", stage.window, f"at most {most}")
        for name in ("lr", "muon_lr", "clip", "minutes", "checkpoint_minutes", "gradient_accumulation_steps"):
            _require(getattr(self, name) is None or getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        _require(self.lora is None or self.start is not None, "lora", self.lora, "with a checkpoint to start from")
        _require(self.lora is None or self.mixed_precision is not None, "lora", self.lora, "with a mixed precision")
        if self.mixed_precision == "fp16":  # an overflow must keep all weights as they are, not those of one optimizer
            _require(self.muon_lr is None, "muon_lr", self.muon_lr, "none with fp16")
        _require(0 < self.quantized_share <= 1, "quantized_share", self.quantized_share, "more than 0, at most 1")
        if self.quantization is not None:
            _require(self.lora is None, "quantization", self.quantization, "with all weights trained, not adapters")
            _require(self.mixed_precision is None, "quantization", self.quantization, "with master weights (pure bf16)")
        _require(self.warmup >= 0 and self.decay >= 0, "warmup and decay", (self.warmup, self.decay), "0 or more")
        _require(self.warmup + self.decay <= 1, "warmup + decay", self.warmup + self.decay, "at most 1")

    def recipe(self) -> dict[str, Any]:
        """The options that affect the result of training, by dotted name, as JSON values."""
        free = (
            "max_steps", "minutes", "checkpoint_minutes", "compile", "window_processes",
            "gradient_accumulation_steps", "gradient_checkpointing",
        )  # fmt: skip
        recipe: dict[str, Any] = {}
        for name, value in json.loads(json.dumps(asdict(self))).items():
            if isinstance(value, dict):
                recipe |= {f"{name}.{inner}": of_inner for inner, of_inner in value.items()}
            elif name not in free and value is not None:
                recipe[name] = value
        return recipe


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Read stages written as `WINDOW:SHARE,...`, for instance `512:0.7,2048:0.3`.

    Raises:
        OptionError: the text has another form.
    """
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return tuple(Stage(int(window), float(share)) for window, share in pairs)
    except ValueError as error:
        raise OptionError(f"stages {text!r} are not of the form WINDOW:SHARE,...") from error


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise OptionError(f"{name} is {value!r}, expected {expected}")
