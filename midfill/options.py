"""Settings as command line options: every field of `Settings` becomes an option of a typer command."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from protocol.settings import About, Settings, option_name, with_environment, with_options


def takes_settings(command: Callable[..., None], only: frozenset[str] | None = None) -> Callable[..., None]:
    """`command(settings=..., **its own)` as a typer command with an option per setting (or per name in `only`).

    Defaults and environment variables come first, then the options given. BadSettings for a bad value.
    """
    hints = get_type_hints(Settings, include_extras=True)
    names = [field.name for field in fields(Settings) if only is None or field.name in only]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name, hints[name]))
        for name in names
    ]
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "settings"]

    def wrapper(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in names}
        settings = with_options(with_environment(Settings(), os.environ), given)
        command(settings=settings, **arguments)

    parameters = [*own, *options]
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _option(name: str, hint: Any) -> Any:
    """The annotation that makes typer show a setting: its type where typer knows it, else text."""
    kind, about = get_args(hint)[0], next(item for item in get_args(hint) if isinstance(item, About))
    shown = f"{option_name(name)}/--no-{name.replace('_', '-')}" if kind is bool else option_name(name)
    if get_origin(kind) is tuple:
        kind = list[str]
    return Annotated[kind | None, typer.Option(shown, help=about.meaning, show_default=False)]
