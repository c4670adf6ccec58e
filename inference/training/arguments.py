"""Owns the options that the trainer's commands share, and turns a frozen struct into the options of a command."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer

from inference.training.options import ExampleOptions, TrainingOptions


@dataclass(frozen=True, kw_only=True)
class TrainerArguments:
    """The options that every command has that trains a model."""

    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="Model to start from: bundled, a folder, or a name on the hub. Default: from scratch."
        ),
    ] = None
    warmup: Annotated[float, typer.Option(help="Share of the run in which the learning rate grows.")] = (
        TrainingOptions.warmup
    )
    decay: Annotated[float, typer.Option(help="Share of the run, at its end, in which the learning rate falls.")] = (
        TrainingOptions.decay
    )
    weight_decay: Annotated[float, typer.Option(help="Weight decay of the matrices.")] = TrainingOptions.weight_decay
    fim_rate: Annotated[float, typer.Option(help="Share of fill-in-the-middle examples.")] = ExampleOptions.fim_rate
    efim_rate: Annotated[float, typer.Option(help="Share of EFIM among them.")] = ExampleOptions.efim_rate
    spm_rate: Annotated[float, typer.Option(help="Share of SPM among them; the rest is PSM.")] = ExampleOptions.spm_rate
    fragment_rate: Annotated[float, typer.Option(help="Share of examples split in fragments.")] = (
        ExampleOptions.fragment_rate
    )
    piece_rate: Annotated[float, typer.Option(help="Probability that a text is split once more.")] = (
        ExampleOptions.piece_rate
    )
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = (
        TrainingOptions.checkpoint_minutes
    )
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0
    processes: Annotated[int, typer.Option(min=1, help="Number of processes, each with its own device.")] = 1
    change_recipe: Annotated[
        bool, typer.Option("--change-recipe", help="Go on with a run under other options than it was started with.")
    ] = False

    def training(self, examples: Mapping[str, Any], **others: Any) -> TrainingOptions:
        """The options of a run: those of the same names here, but for `examples`, of `ExampleOptions`, and `others`."""
        cuts = ExampleOptions(**{**self._shared_with(ExampleOptions), **examples})
        return TrainingOptions(**{**self._shared_with(TrainingOptions), "examples": cuts, **others})

    def _shared_with(self, kind: type[ExampleOptions | TrainingOptions]) -> dict[str, Any]:
        shared = {field.name for field in fields(self)} & {field.name for field in fields(kind)}
        return {name: getattr(self, name) for name in shared}


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command(arguments=..., **its own)` as a typer command with an option per field of the struct `arguments`."""
    own = dict(inspect.signature(command, eval_str=True).parameters)
    kind = own.pop("arguments").annotation
    hints = get_type_hints(kind, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
    ]

    def wrapper(**arguments: Any) -> None:
        values = {option.name: arguments.pop(option.name) for option in options}
        command(**arguments, arguments=kind(**values))

    shown = [*own.values(), *options]
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return wrapper
