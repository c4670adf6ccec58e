"""The subcommands of `midfill` and their options.

Each command imports its modules when it runs, so that the other commands start without torch. Other distributions add
commands as entry points of the group `midfill.commands`; those are imported when they are asked for, or for the help.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from midfill.complete import complete_command
from midfill.cores import (
    add_command,
    core_command,
    free_command,
    list_command,
    list_tokens_command,
    restart_command,
    revoke_command,
    stop_command,
    unload_command,
)
from midfill.doctor.command import doctor_command
from midfill.models import download_command, models_command
from midfill.options import takes_settings
from midfill.play import play_command
from midfill.replay.command import replay_command
from midfill.stats import stats_command
from protocol.errors import BadInput
from protocol.rendezvous import ANSWER_SETTINGS
from protocol.settings import CORE_SETTINGS, Settings

_ADDED = "midfill.commands"
_LAB = ("eval", "train")


class Commands(TyperGroup):
    """midfill's own commands, and behind them those that other distributions add."""

    def list_commands(self, ctx: Any) -> list[str]:  # typer's own copy of click has no public name
        """All names, as the help has them."""
        return [*super().list_commands(ctx), *sorted(entry_points(group=_ADDED).names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or None for an unknown one; BadInput for one of a distribution that is not installed."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in entry_points(group=_ADDED, name=cmd_name):
            try:
                command = entry.load()
            except ImportError as error:
                command = _broken(cmd_name, error)
            added = typer.Typer(rich_markup_mode=None, add_completion=False)
            added.command(cmd_name)(command)
            return typer.main.get_command(added)
        if cmd_name in _LAB:
            raise BadInput(
                f"`midfill {cmd_name}` is part of the package midfill-lab: run `make setup` in the clone, "
                "or install its wheel of `make wheels`"
            )
        return None


def _broken(name: str, error: ImportError) -> Callable[[], None]:
    def command() -> None:
        raise BadInput(f"`midfill {name}` cannot be loaded: {error}; install its distribution again")

    command.__doc__ = f"(cannot be loaded: {error})"
    return command


app = typer.Typer(
    cls=Commands,
    name="midfill",
    help="Local code completion that computes only what you typed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's tables break words in narrow terminals
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("midfill"))
        raise typer.Exit


@app.callback()
def midfill(
    _: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Local code completion that computes only what you typed."""


def lsp(settings: Settings) -> None:
    """Run the language server that editors talk to.

    It speaks LSP over stdio, and finds or starts the core.
    """
    from lsp_server.launch import run_stdio

    run_stdio(settings)


_MODEL_SETTINGS = frozenset({"model", "device", "dtype"})
_MACHINE_SETTINGS = frozenset({"device", "dtype", "weights", "context_tokens"})
_REPLAY_SETTINGS = _MODEL_SETTINGS | {"prefix_tokens", "suffix_tokens", "store_mb", "healing"}
_COMPLETE_SETTINGS = _MODEL_SETTINGS | set(ANSWER_SETTINGS) | {
    "core", "core_token", "engine_key", "prefix_tokens", "suffix_tokens", "max_tokens", "hold_back_percent",
    "shorten_unlikely", "other_files", "other_files_tokens", "context_sources", "ignored_files",
}  # fmt: skip

app.command()(takes_settings(lsp))
core_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
core_app.callback()(takes_settings(core_command, only=(*CORE_SETTINGS, "engine_key")))
core_app.command("list")(list_command)
core_app.command("stop")(stop_command)
core_app.command("restart")(restart_command)
core_app.command("unload")(unload_command)
core_app.command("free")(free_command)
app.add_typer(core_app, name="core")
token_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The users of a core that a team shares.")
token_app.command("add")(add_command)
token_app.command("list")(list_tokens_command)
token_app.command("revoke")(revoke_command)
app.add_typer(token_app, name="token")
app.command("complete")(takes_settings(complete_command, only=_COMPLETE_SETTINGS))
app.command("doctor")(takes_settings(doctor_command, report_refused=True))
models_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
models_app.callback()(takes_settings(models_command, only=_MACHINE_SETTINGS))
models_app.command("download")(download_command)
app.add_typer(models_app, name="models")
app.command("play")(takes_settings(play_command))
app.command("stats")(stats_command)
app.command("replay")(takes_settings(replay_command, only=_REPLAY_SETTINGS))
