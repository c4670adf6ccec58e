"""Writes the model card: a model's data, training, quality and limits."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from inference.training.corpus.corpus import Manifest, PackageRecord
from inference.training.machine import Machine
from inference.training.optimization.schedule import TrainingProgress
from inference.training.options import TrainingOptions
from inference.training.run.checkpoints import Recipe
from inference.training.run.evaluation import HeldOutLosses


@dataclass(frozen=True)
class CardFacts:
    """The facts of a model card."""

    name: str
    parameters: int
    vocabulary: int
    options: TrainingOptions
    recipes: tuple[Recipe, ...]
    manifest: Manifest
    progress: TrainingProgress
    machine: Machine
    losses: HeldOutLosses


def write_card(facts: CardFacts, path: Path) -> None:
    """Write the card as Markdown with the metadata block of the Hugging Face hub."""
    sections = (_head(facts), _prompt(), _training(facts), _losses(facts), _data(facts), _limits(facts))
    path.write_text("\n\n".join(sections) + "\n")


def run_command(options: TrainingOptions) -> str:
    """The command that trains with these options; CORPUS and RUN stand for folders."""
    examples = options.examples
    arguments = {
        "from": options.start,
        "mixed-precision": options.mixed_precision,
        "stages": ",".join(f"{stage.window}:{stage.share:g}" for stage in options.stages),
        "batch-tokens": options.batch_tokens,
        "lr": options.lr,
        "muon-lr": options.muon_lr,
        "weight-decay": options.weight_decay,
        "warmup": options.warmup,
        "decay": options.decay,
        "fim-rate": examples.fim_rate,
        "efim-rate": examples.efim_rate,
        "spm-rate": examples.spm_rate,
        "fragment-rate": examples.fragment_rate,
        "context-fragment-rate": examples.context_fragment_rate,
        "piece-rate": examples.piece_rate,
        "shortest-fragment": examples.shortest_fragment,
        "longest-fragment": examples.longest_fragment,
        "max-minutes": options.max_minutes,
        "max-steps": options.max_steps,
        "seed": options.seed,
    }
    given = [f"--{name} {shlex.quote(str(value))}" for name, value in arguments.items() if value is not None]
    return "python -m inference.training run CORPUS RUN " + " ".join(given)


def _head(facts: CardFacts) -> str:
    shape = facts.options.shape
    return f"""---
license: apache-2.0
language: code
library_name: transformers
pipeline_tag: text-generation
tags: [code, python, fill-in-the-middle, efim]
---

# {facts.name}

A very small code completion model for Python, trained with *fragment tokenization* (EFIM, arXiv 2505.21889) by
midfill's own trainer. With it, midfill runs and its tests pass without any download. It is a demonstration:
for real work, use a larger code model.

{facts.parameters / 1e6:.1f}M parameters: Llama, {shape.layers} layers, width {shape.hidden}, {shape.heads} heads of
{shape.head_dim}, {shape.kv_heads} KV head, feed-forward width {shape.intermediate}, tied embeddings,
{facts.vocabulary:,} byte-level BPE tokens with the split pattern and marker names of Qwen2.5-Coder,
{shape.positions:,} positions (RoPE base {shape.rope_theta:,.0f}). Weights: bfloat16, Apache-2.0."""


def _prompt() -> str:
    return """## Prompt

`<|fim_prefix|>` prefix `<|fim_suffix|>` suffix `<|fim_middle|>` increment, followed by the completion.

The prefix ends at a line start some lines above the cursor, the suffix begins at the cursor, and the increment is the
text between them. Each of the three is tokenized on its own. The increment may end anywhere, even inside a word.
The completion ends with `<|endoftext|>` where the suffix continues. With an empty increment this is plain PSM."""


def _training(facts: CardFacts) -> str:
    progress, options = facts.progress, facts.options
    windows = "; ".join(
        f"{count:,} windows of {stage.window:,}" for stage, count in zip(options.stages, progress.windows, strict=True)
    )
    longest = max(stage.window for stage, count in zip(options.stages, progress.windows, strict=True) if count)
    share = progress.share(options)
    unfinished = "" if share >= 1 else f"\nThis is an interim edition, exported after {share:.0%} of the run.\n"
    return f"""## Training
{unfinished}
{_origin(options)}
{progress.step:,} steps, {progress.tokens / 1e6:.1f}M tokens, {progress.seconds / 60:.0f} minutes on {facts.machine}.
Windows: {windows}. The model was not trained on positions beyond {longest:,}.
{_optimizers(options)}, with a
warmup-stable-decay schedule. Loss over all tokens.

```sh
python -m inference.training corpus CORPUS
{_tokenizer_command(facts)}
{run_command(options)}
python -m inference.training export RUN CORPUS {facts.name}
```

`corpus` reads the packages of the environments that `--environment` names, by default those of its own interpreter;
the packages that it found are listed below.{_changes(facts.recipes)}"""


def _origin(options: TrainingOptions) -> str:
    if options.start is None:
        return "From scratch."
    return f"Continues the model `{options.start}` in its previous edition, with its tokenizer."


def _optimizers(options: TrainingOptions) -> str:
    rule = "AdamW" if options.muon_lr is None else "Muon on the matrices and AdamW on the rest"
    weights = {None: "float32 masters of bf16 weights", "no": "float32 weights"}
    return f"{rule}, over {weights.get(options.mixed_precision, f'float32 weights in mixed {options.mixed_precision}')}"


def _tokenizer_command(facts: CardFacts) -> str:
    if facts.options.start is None:
        return f"python -m inference.training tokenizer CORPUS --size {facts.vocabulary}"
    return "cp MODEL/tokenizer.json CORPUS  # of the model that it continues"


def _changes(recipes: Sequence[Recipe]) -> str:
    """One sentence per change of the recipe during the run."""
    sentences = [
        f"\nUp to step {after.step:,} the run had "
        + ", ".join(f"{name} = {value}" for name, (value, _) in before.changes_to(after.options).items())
        + "."
        for before, after in pairwise(recipes)
    ]
    return "".join(sentences)


def _losses(facts: CardFacts) -> str:
    losses = facts.losses
    far = "no document is that long" if losses.far is None else f"{losses.far:.3f}"
    return f"""## Held-out losses

Measured on packages that neither the model nor the tokenizer was trained on (listed below):

| measure | value |
| --- | --- |
| left to right, nats per token | {losses.left_to_right:.3f} |
| left to right, bits per byte | {losses.left_to_right_bits:.3f} |
| the same at positions 512 to 3,072, nats per token | {far} |
| middles in fragments, as in midfill's prompts, nats per byte | {losses.fragments:.3f} |
| the same middles tokenized whole, nats per byte | {losses.whole:.3f} |
| middles after which the end is the likeliest token | {losses.stops:.0%} |

A middle is the text between anchor and suffix, with its end marker, in windows of about 512 tokens."""


def _data(facts: CardFacts) -> str:
    manifest = facts.manifest
    trained, held_out = manifest.of_role("train"), manifest.of_role("held_out")
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in manifest.dropped.items())
    return f"""## Data

Python source of installed packages whose metadata names a permissive licence, and of the standard library:
{sum(package.files for package in trained):,} files, {sum(package.bytes for package in trained) / 1e6:.1f} MB. Every
package keeps its own licence and copyright; the table names them as attribution.
Files dropped, by reason: {dropped}. Packages refused for their licence: {len(manifest.of_role("refused"))}.

Held out: {", ".join(f"{package.name} {package.version}" for package in held_out)}
({sum(package.files for package in held_out):,} files, {sum(package.bytes for package in held_out) / 1e6:.1f} MB).

| package | licence | files | kB |
| --- | --- | --- | --- |
{chr(10).join(package_rows(trained))}"""


def package_rows(packages: tuple[PackageRecord, ...]) -> Iterator[str]:
    """One row per package name; joins versions and licences from several environments."""
    ordered = sorted(packages, key=lambda package: package.name)
    for name, several in groupby(ordered, key=lambda package: package.name):
        group = list(several)
        versions = ", ".join(dict.fromkeys(package.version for package in group))
        licences = "; ".join(dict.fromkeys(package.licence for package in group))
        files, size = sum(package.files for package in group), sum(package.bytes for package in group)
        yield f"| {name} {versions} | {licences} | {files} | {size / 1e3:.0f} |"


def _limits(facts: CardFacts) -> str:
    tokens_per_parameter = facts.progress.tokens / facts.parameters
    return f"""## Limits

- {tokens_per_parameter:.1f} training tokens for each parameter: far fewer than a model of this size can use. It
  completes words and common idioms; it does not reason, and greedy decoding soon repeats itself.
- It predicts the end of {facts.losses.stops:.0%} of the middles: an engine has to stop it at line ends and at the
  beginning of the suffix.
- Python only: it was not trained on other languages, prose or instructions.
- It was trained on public source code and may reproduce pieces of it."""
