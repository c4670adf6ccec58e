"""Options of commands: settings and frozen dataclasses as typer's options, and output files that are checked early."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import typer

from protocol.errors import BadInput
from protocol.settings import SETTINGS, Setting, Settings, option_name
from protocol.settings_sources import read_environment, with_options


def takes_settings(
    command: Callable[..., None], only: Collection[str] = SETTINGS, *, report_refused: bool = False
) -> Callable[..., None]:
    """`command(settings=..., **its own)` as a typer command with an option per setting (or per name in `only`).

    Options override environment variables, and these the defaults. BadSettings for a bad value; with `report_refused`
    the errors of bad variables are not raised but passed to the command as `refused`.
    """
    shown = {name: _option(setting) for name, setting in SETTINGS.items() if name in only}
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option) for name, option in shown.items()
    ]
    signature = inspect.signature(command, eval_str=True)
    handed = {"settings", "refused"} if report_refused else {"settings"}
    own = [parameter for parameter in signature.parameters.values() if parameter.name not in handed]

    def wrapper(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in shown}
        settings, refused = read_environment(Settings(), os.environ)
        if report_refused:
            arguments["refused"] = refused
        elif refused:
            raise refused[0]
        command(settings=with_options(settings, given), **arguments)

    return _shown_as(command, wrapper, [*own, *options])


def _shown_as(
    command: Callable[..., None], wrapper: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """The wrapper with the command's name and help and these parameters, as typer reads them."""
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _option(setting: Setting) -> Any:
    """The annotation of a setting's option: its type if typer knows it, else text."""
    kind, shown = setting.kind, option_name(setting.name)
    if kind is bool:
        shown += f"/{option_name('no_' + setting.name)}"
    if get_origin(kind) is tuple:
        kind = list[str]
    return Annotated[kind | None, typer.Option(shown, help=_help(setting), show_default=False)]


def _help(setting: Setting) -> str:
    """The setting's help with its default; the option itself has none, since a variable may set another value."""
    default = setting.default
    if isinstance(default, bool):
        default = option_name(setting.name if default else f"no_{setting.name}")
    return f"{setting.about.meaning}.  [default: {default}]" if default not in ("", ()) else f"{setting.about.meaning}."


Name = TypeVar("Name", bound=str)


def chosen(option: str, names: str, known: tuple[Name, ...]) -> tuple[Name, ...]:
    """The names that an option lists with commas, in the order of the known ones; BadInput for an unknown one."""
    given = [name.strip() for name in names.split(",")]
    for name in given:
        if name not in known:
            raise BadInput(f"{option} {names}: unknown {name!r}, choose from {', '.join(known)}")
    return tuple(name for name in known if name in given)


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command(arguments=..., **its own)` as a typer command with an option per field of the dataclass `arguments`."""
    own = dict(inspect.signature(command, eval_str=True).parameters)
    kind = own.pop("arguments").annotation
    hints = get_type_hints(kind, include_extras=True)
    options = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(kind)
    ]

    def wrapper(**arguments: Any) -> None:
        values = {option.name: arguments.pop(option.name) for option in options}
        command(**arguments, arguments=kind(**values))

    return _shown_as(command, wrapper, [*own.values(), *options])


def check_writable(path: Path | None) -> None:
    """BadInput if the file cannot be written; None and - stand for no file. A missing file is created, empty."""
    if path is None or path == Path("-"):
        return
    try:
        path.open("a").close()
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
