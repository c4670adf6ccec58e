"""The command `midfill core` without a subcommand, which runs a core."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from midfill.takes_options import takes_options
from protocol.errors import BadInput
from protocol.rendezvous import address_file, core_name, runtime_folder
from protocol.settings import Settings


@dataclass(frozen=True, kw_only=True)
class CoreOptions:
    """The options, besides settings, as the command line spells them."""

    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines can connect if it is not loopback.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Origin of a web page that may connect; repeatable.")
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Host name that requests may use for this core, such as a proxy's; repeatable."),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain in PEM: serve TLS 1.2 and later at this port.")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate, in PEM, not encrypted.")] = None
    users: Annotated[Path | None, typer.Option(help="File of users with tokens of their own; see `midfill token`.")] = (
        None
    )
    user_requests: Annotated[
        int | None,
        typer.Option(min=1, help="Limit of a user's requests at work; others wait.  [default: no limit]"),
    ] = None
    user_queue: Annotated[int, typer.Option(min=1, help="Limit of a user's waiting requests; more are refused.")] = 64
    user_tokens_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Limit of the tokens computed for a user a minute.  [default: no limit]")
    ] = None
    separate_users: Annotated[
        bool, typer.Option(help="Reuse nothing across users: a text that they share is computed for each.")
    ] = False
    drain_s: Annotated[
        float, typer.Option(min=0, help="Seconds that requests have to finish when SIGTERM or SIGINT ends the core.")
    ] = 5.0
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option(help="`text`, or `json`: one object per line, with one line per request."),
    ] = "text"
    log_file: Annotated[
        Path | None, typer.Option(help="Append the log to this file instead of writing it to stderr; kept below 4 MiB.")
    ] = None
    replaceable: Annotated[
        bool, typer.Option(help="Exit if a client with other settings connects and no other client is connected.")
    ] = False


@takes_options
def core_command(settings: Settings, context: typer.Context, arguments: CoreOptions) -> None:
    """Run the inference core that language servers share, or control the running ones with a subcommand.

    Language servers start a core if none runs. Run one by hand to serve other machines, or programs that speak HTTP: it
    takes the place of one that a language server has started.
    """
    if context.invoked_subcommand is not None:
        return
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise BadInput("--tls-cert and --tls-key need each other")
    from inference.scheduling.user_limits import UserLimits
    from inference.server.starting import run, serve_options

    options = serve_options(
        settings,
        separate_users=arguments.separate_users,
        host=arguments.host,
        port=arguments.port,
        allowed_origins=tuple(arguments.allow_origin or ()),
        allowed_hosts=tuple(arguments.allow_host or ()),
        certificate=(arguments.tls_cert, arguments.tls_key) if arguments.tls_cert and arguments.tls_key else None,
        users=arguments.users,
        limits=UserLimits(arguments.user_requests, arguments.user_queue, arguments.user_tokens_per_minute),
        drain_s=arguments.drain_s,
        log_json=arguments.log_format == "json",
        log_file=arguments.log_file,
        replaceable=arguments.replaceable,
    )
    # Clients start cores that give way; two of them agree by the core's lock.
    with ExitStack() as place:
        if not arguments.replaceable:
            place.enter_context(_place_of(options.engine.model, options.engine.engine))
        run(options, on_published=place.close)


def _place_of(model: str, engine: str) -> AbstractContextManager[None]:
    from lsp_server.core.takeover import place_of

    file = address_file(runtime_folder(), core_name(model, engine))
    return place_of(file, lambda told: typer.echo(f"midfill: {told}", err=True))
