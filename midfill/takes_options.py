"""Turns a frozen dataclass into the options of a command."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command(arguments=..., **its own)` as a typer command with an option per field of the dataclass `arguments`."""
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
