"""The commands `midfill token add`, `list` and `revoke`: the users of a core that a team shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

_File = Annotated[Path, typer.Option("--users", help="The file of users that the core was started with.")]


def add_command(
    name: Annotated[str, typer.Argument(help="User's name; one that has a token gets another one.")],
    users: _File,
    role: Annotated[
        Literal["user", "metrics"], typer.Option(help="`user`, or `metrics`: may read /metrics and nothing else.")
    ] = "user",
) -> None:
    """Add a token for a user and print it, once: the file keeps only its digest."""
    from inference.server.admission.users import add_token

    typer.echo(add_token(users, name, role))


def list_command(users: _File) -> None:
    """List the tokens: user, id, role, and when the token was added."""
    from inference.server.admission.users import read_users

    for token in sorted(read_users(users), key=lambda token: (token.name, token.added)):
        typer.echo(f"{token.name}  {token.id}  {token.role}  {token.added}")


def revoke_command(
    which: Annotated[str, typer.Argument(metavar="NAME|ID", help="A user, for all tokens of it, or a token's id.")],
    users: _File,
) -> None:
    """Revoke tokens: a running core ends their connections within a second."""
    from inference.server.admission.users import revoke_tokens

    for token in revoke_tokens(users, which):
        typer.echo(f"revoked {token.id} of {token.name}")
