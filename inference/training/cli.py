"""Owns the commands `run` and `export`, and gathers all others."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from inference.training.commands.corpus import CorpusArgument, download_packages, make_corpus, make_tokenizer
from inference.training.commands.interchange import make_base, measure_quantizations, write_gguf_file
from inference.training.corpus.corpus import Corpus
from inference.training.options import ExampleOptions, Precision, TrainingOptions, parse_stages
from inference.training.readable_errors import readable_errors

app = typer.Typer(
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


_FIM, _RUN = ExampleOptions(), TrainingOptions(max_steps=1)


@app.command("run")
def run_training(
    corpus: CorpusArgument,
    run: RunArgument,
    max_minutes: Annotated[
        float | None, typer.Option(help="Training time, including earlier parts of the run.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Model to start from, with the same tokenizer. Default: from scratch.")
    ] = None,
    mixed_precision: Annotated[
        Precision | None,
        typer.Option(help="Mixed precision over float32 weights. Default: bf16 weights with float32 masters."),
    ] = None,
    stages: Annotated[str, typer.Option(help="WINDOW:SHARE,... in tokens and shares of the run.")] = "512:0.7,2048:0.3",
    batch_tokens: Annotated[int, typer.Option(help="Tokens in one step.")] = _RUN.batch_tokens,
    lr: Annotated[float, typer.Option(help="Peak learning rate of AdamW: embeddings and norms.")] = _RUN.lr,
    muon_lr: Annotated[float | None, typer.Option(help="Peak learning rate of Muon: matrices.")] = _RUN.muon_lr,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of the matrices.")] = _RUN.weight_decay,
    warmup: Annotated[float, typer.Option(help="Share of the run in which the learning rate grows.")] = _RUN.warmup,
    decay: Annotated[
        float, typer.Option(help="Share of the run, at its end, in which the learning rate falls.")
    ] = _RUN.decay,
    fim_rate: Annotated[float, typer.Option(help="Share of fill-in-the-middle examples.")] = _FIM.fim_rate,
    efim_rate: Annotated[float, typer.Option(help="Share of EFIM prompts among them.")] = _FIM.efim_rate,
    spm_rate: Annotated[float, typer.Option(help="Share of SPM among them; the rest is PSM.")] = _FIM.spm_rate,
    fragment_rate: Annotated[float, typer.Option(help="Share of examples split in fragments.")] = _FIM.fragment_rate,
    context_fragment_rate: Annotated[
        float, typer.Option(help="Share of fill-in-the-middle examples with split prefix and suffix.")
    ] = _FIM.context_fragment_rate,
    piece_rate: Annotated[float, typer.Option(help="Probability that a text is split once more.")] = _FIM.piece_rate,
    shortest_fragment: Annotated[
        int, typer.Option(help="Shortest fragment outside of middles, in characters.")
    ] = _FIM.shortest_fragment,
    longest_fragment: Annotated[
        int, typer.Option(help="Longest fragment outside of middles, in characters.")
    ] = _FIM.longest_fragment,
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = _RUN.checkpoint_minutes,
    use_compiler: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the model.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    change_recipe: Annotated[
        bool, typer.Option("--change-recipe", help="Resume even if the options differ from those of the run.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Number of processes on this machine.")] = 1,
) -> None:
    """Train, or go on with a run that was stopped: the same command resumes it, on any number of processes."""
    with readable_errors():
        options = TrainingOptions(
            examples=ExampleOptions(
                fim_rate=fim_rate,
                efim_rate=efim_rate,
                spm_rate=spm_rate,
                fragment_rate=fragment_rate,
                context_fragment_rate=context_fragment_rate,
                piece_rate=piece_rate,
                shortest_fragment=shortest_fragment,
                longest_fragment=longest_fragment,
            ),
            start=start,
            mixed_precision=mixed_precision,
            stages=parse_stages(stages),
            batch_tokens=batch_tokens,
            lr=lr,
            muon_lr=muon_lr,
            weight_decay=weight_decay,
            warmup=warmup,
            decay=decay,
            max_minutes=max_minutes,
            max_steps=max_steps,
            checkpoint_minutes=checkpoint_minutes,
            compile=use_compiler,
            seed=seed,
        )
        _train(corpus, run, options, processes, change_recipe=change_recipe)


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

    with readable_errors():
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
