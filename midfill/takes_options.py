"""Turns a frozen dataclass into the options of a command, and reads an option that lists names."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from protocol.errors import BadInput

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
