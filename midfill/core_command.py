"""The command `midfill core` without a subcommand, which runs a core."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from midfill.output_files import check_writable
from protocol.errors import BadInput
from protocol.identity import core_settings
from protocol.rendezvous import address_file, cache_folder, core_name, resolve_engine, resolve_model, runtime_folder
from protocol.settings import Settings


def core_command(
    settings: Settings,
    context: typer.Context,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines can connect if it is not loopback.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Origin of a web page that may connect; repeatable.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Host name that requests may use for this core, such as a proxy's; repeatable."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain in PEM: serve TLS 1.2 and later at this port.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate, in PEM, not encrypted.")] = None,
    users: Annotated[Path | None, typer.Option(help="File of users with tokens of their own; see `midfill token`.")] = (
        None
    ),
    user_requests: Annotated[
        int | None,
        typer.Option(min=1, help="Limit of a user's requests at work; others wait.  [default: no limit]"),
    ] = None,
    user_queue: Annotated[int, typer.Option(min=1, help="Limit of a user's waiting requests; more are refused.")] = 64,
    user_tokens_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Limit of the tokens computed for a user a minute.  [default: no limit]")
    ] = None,
    separate_users: Annotated[
        bool, typer.Option(help="Reuse nothing across users: a text that they share is computed for each.")
    ] = False,
    drain_s: Annotated[
        float, typer.Option(min=0, help="Seconds that requests have to finish when SIGTERM or SIGINT ends the core.")
    ] = 5.0,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option(help="`text`, or `json`: one object per line, with one line per request."),
    ] = "text",
    log_file: Annotated[
        Path | None, typer.Option(help="Append the log to this file instead of writing it to stderr; kept below 4 MiB.")
    ] = None,
    replaceable: Annotated[
        bool, typer.Option(help="Exit if a client with other settings connects and no other client is connected.")
    ] = False,
) -> None:
    """Run the inference core that language servers share, or control the running ones with a subcommand.

    Language servers start a core if none runs. Run one by hand to serve other machines, or programs that speak HTTP: it
    takes the place of one that a language server has started.
    """
    if context.invoked_subcommand is not None:
        return
    if (tls_cert is None) != (tls_key is None):
        raise BadInput("--tls-cert and --tls-key need each other")
    from inference.loading.options import engine_options
    from inference.scheduling.user_limits import UserLimits
    from inference.server.process import ServeOptions, serve

    if log_file is not None:
        check_writable(log_file)
        log = log_file.open("ab", buffering=0)
        os.dup2(log.fileno(), sys.stderr.fileno())
    options = ServeOptions(
        engine=replace(
            engine_options(settings),
            model=resolve_model(settings.model),
            engine=resolve_engine(settings.engine),
            cache_folder=cache_folder() if settings.disk_mb else None,
            separate_users=separate_users,
        ),
        host=host,
        port=port,
        allowed_origins=tuple(allow_origin or ()),
        allowed_hosts=tuple(allow_host or ()),
        certificate=(tls_cert, tls_key) if tls_cert and tls_key else None,
        users=users,
        limits=UserLimits(user_requests, user_queue, user_tokens_per_minute),
        drain_s=drain_s,
        log_json=log_format == "json",
        log_file=log_file,
        unload_after_s=settings.unload_after_s or None,
        exit_after_s=settings.exit_after_s or None,
        settings=core_settings(settings),
        replaceable=replaceable,
        speed_folder=cache_folder(),
    )
    # Clients start cores that give way; two of them agree by the core's lock.
    with ExitStack() as place:
        if not replaceable:
            place.enter_context(_place_of(options.engine.model, options.engine.engine))
        ended = serve(options, on_published=place.close)
    if not ended:
        os._exit(0)  # a normal exit would stop the model's thread within torch, which aborts the process


def _place_of(model: str, engine: str) -> AbstractContextManager[None]:
    from lsp_server.core.takeover import place_of

    file = address_file(runtime_folder(), core_name(model, engine))
    return place_of(file, lambda told: typer.echo(f"midfill: {told}", err=True))
