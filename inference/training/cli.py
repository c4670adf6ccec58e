"""Owns the commands `run` and `export`, and gathers all others."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from inference.training.arguments import TrainerArguments, takes_options
from inference.training.commands.corpus import CorpusArgument, download_packages, make_corpus, make_tokenizer
from inference.training.commands.interchange import make_base, measure_quantizations, write_gguf_file
from inference.training.corpus.corpus import Corpus
from inference.training.options import ExampleOptions, Precision, TrainingOptions, parse_stages
from inference.training.readable_errors import ReadableErrors

app = typer.Typer(
    cls=ReadableErrors,
    help="Train a small completion model with fragment tokenization.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

app.command("download")(download_packages)
app.command("corpus")(make_corpus)
app.command("tokenizer")(make_tokenizer)
app.command("base")(make_base)
app.command("gguf")(write_gguf_file)
app.command("quantizations")(measure_quantizations)

RunArgument = Annotated[Path, typer.Argument(help="Folder of the run: its checkpoints and its log.")]


@dataclass(frozen=True, kw_only=True)
class RunArguments(TrainerArguments):
    """The options of `run`."""

    start: Annotated[
        str | None, typer.Option("--from", help="Model to start from, with the same tokenizer. Default: from scratch.")
    ] = None
    max_minutes: Annotated[float | None, typer.Option(help="Training time, including earlier parts of the run.")] = None
    max_steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None
    mixed_precision: Annotated[
        Precision | None,
        typer.Option(help="Mixed precision over float32 weights. Default: bf16 weights with float32 masters."),
    ] = None
    stages: Annotated[str, typer.Option(help="WINDOW:SHARE,... in tokens and shares of the run.")] = "512:0.7,2048:0.3"
    batch_tokens: Annotated[int, typer.Option(help="Tokens in one step.")] = TrainingOptions.batch_tokens
    lr: Annotated[float, typer.Option(help="Peak learning rate of AdamW: embeddings and norms.")] = TrainingOptions.lr
    muon_lr: Annotated[float | None, typer.Option(help="Peak learning rate of Muon: matrices.")] = (
        TrainingOptions.muon_lr
    )
    context_fragment_rate: Annotated[
        float, typer.Option(help="Share of fill-in-the-middle examples with split prefix and suffix.")
    ] = ExampleOptions.context_fragment_rate
    shortest_fragment: Annotated[int, typer.Option(help="Shortest fragment outside of middles, in characters.")] = (
        ExampleOptions.shortest_fragment
    )
    longest_fragment: Annotated[int, typer.Option(help="Longest fragment outside of middles, in characters.")] = (
        ExampleOptions.longest_fragment
    )
    compile: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the model.")] = True

    def options(self) -> TrainingOptions:
        """The run that these ask for; OptionError for a value that is out of bounds."""
        return self.training({}, stages=parse_stages(self.stages))


@app.command("run")
@takes_options
def run_training(corpus: CorpusArgument, run: RunArgument, arguments: RunArguments) -> None:
    """Train, or go on with a run that was stopped: the same command resumes it, on any number of processes."""
    _train(corpus, run, arguments.options(), arguments.processes, change_recipe=arguments.change_recipe)


@app.command("export")
def export_checkpoint(
    run: RunArgument,
    corpus: CorpusArgument,
    output: Annotated[Path, typer.Argument(help="Folder to write the model to; its name becomes the model's.")],
    samples: Annotated[int, typer.Option(help="Number of held-out windows and examples to measure on.")] = 384,
) -> None:
    """Write the newest checkpoint as a Hugging Face model with its card."""
    from inference.training.publishing.export import export_model
    from inference.training.run.checkpoints import RunFolder

    losses = export_model(RunFolder(run), corpus, output, samples=samples)
    Console().print(asdict(losses))


def _train(corpus: Path, run: Path, options: TrainingOptions, processes: int, *, change_recipe: bool) -> None:
    # Imported late: torch and transformers take seconds, and the other commands do without.
    from inference.training.corpus.vocabulary import load_vocabulary
    from inference.training.run.checkpoints import RunFolder
    from inference.training.run.processes import is_launched, join_processes, launch
    from inference.training.run.progress import ProgressDisplay
    from inference.training.run.trainer import StepReport, Trainer

    folder = RunFolder(run)
    vocabulary = load_vocabulary(corpus / "tokenizer.json")
    documents = Corpus(corpus, "train")
    if processes > 1 and not is_launched():
        launch(processes)
    accelerator = join_processes(options.mixed_precision)
    if accelerator.is_main_process:
        folder.claim(corpus, options, change_recipe=change_recipe)
    accelerator.wait_for_everyone()
    trainer = Trainer(folder, documents, vocabulary, options, accelerator)
    with ProgressDisplay(Console(quiet=not accelerator.is_main_process)) as display:

        def report(step: StepReport) -> None:
            display.step(step)
            if accelerator.is_main_process:
                folder.append_log(asdict(step))

        trainer.run(report, display.checkpointed)
    accelerator.end_training()
