"""Settings as command line options: every field of `Settings` becomes an option of a typer command."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection
from typing import Annotated, Any, get_origin

import typer

from protocol.settings import REMOVED_SETTINGS, SETTINGS, Setting, Settings, option_name
from protocol.settings_sources import read_environment, with_options


def takes_settings(
    command: Callable[..., None], only: Collection[str] = SETTINGS, *, tell_refused: bool = False
) -> Callable[..., None]:
    """`command(settings=..., **its own)` as a typer command with an option per setting (or per name in `only`).

    Options override environment variables, and these the defaults. BadSettings for a bad value; with `tell_refused`
    the errors of bad variables are not raised but passed to the command as `refused`.
    """
    shown = {name: _option(setting) for name, setting in SETTINGS.items() if name in only}
    shown |= dict.fromkeys(REMOVED_SETTINGS, Annotated[bool | None, typer.Option(hidden=True)])  # refused by name
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in shown.items()
    ]
    signature = inspect.signature(command, eval_str=True)
    handed = {"settings", "refused"} if tell_refused else {"settings"}
    own = [parameter for parameter in signature.parameters.values() if parameter.name not in handed]

    def wrapper(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in shown}
        settings, refused = read_environment(Settings(), os.environ)
        if tell_refused:
            arguments["refused"] = refused
        elif refused:
            raise refused[0]
        command(settings=with_options(settings, given), **arguments)

    parameters = [*own, *options]
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
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
