"""Installed parts of midfill, and how a program of it ends that lacks a package or meets an error: with one line."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import NoReturn

from protocol.errors import BadInput, BadModel, MidfillError

ENGINE = "engine"  # the extra in pyproject.toml that `core` consists of, but for the bundled model
TORCH = "torch"  # the extra for what the CPU kernel does not run, and for GPUs
_FULL = (errno.ENOSPC, errno.EDQUOT)
_INTERRUPTED = 130  # as a shell reports a command that Ctrl+C ended
REMEDY = "run `make install` in the clone, or install the wheels of `make wheels` with `[core]`"
TORCH_REMEDY = (
    "run `make setup` in the clone, install the wheels of `make wheels` with `[core,torch]`, or run VS Code's command "
    '"midfill: Install midfill…"'
)


def version_of(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """The version of midfill that is installed; "uninstalled" if the code runs from its folder alone."""
    return version_of("midfill") or "uninstalled"


def missing(extra: str = "") -> list[str]:
    """The packages that midfill requires, or that its extra adds, and that are not installed."""
    return [name for name in _required(extra) if version_of(name) is None]


def is_of(extra: str, module: str | None) -> bool:
    """Whether a package that the extra adds has that module."""
    return (module or "").partition(".")[0] in [name.replace("-", "_") for name in _required(extra)]


@contextmanager
def needing_torch(model: object) -> Iterator[None]:
    """Where a package of the extra `torch` is not installed, BadModel for the model that needs it here."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not is_of(TORCH, error.name):
            raise
        raise BadModel(f"{model} needs PyTorch here, and {error.name} is not installed: {TORCH_REMEDY}") from error


def run_program(main: Callable[[], None], name: str) -> None:
    """Run `main`; a MidfillError or the lack of the engine ends this process with one line on stderr and a status.

    Ctrl-C ends it without a word: it may come while modules are imported, before a command could take it. So does a
    reader of the output that has gone; a full disk below the output is told.
    """
    try:
        try:
            main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # at the interpreter's end, a failure would be a traceback
    except OSError as error:
        if error.errno not in (*_FULL, errno.EPIPE):
            raise
        if error.errno in _FULL:
            sys.stderr.write(f"midfill: the output cannot be written: {error.strerror}\n")
            sys.stderr.flush()
        os._exit(1)  # an orderly end would try to write it once more
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except MidfillError as error:
        end(str(error), error.exit_status)
    except ModuleNotFoundError as error:
        # With the status of bad input, since the same command would fail again.
        if is_of(ENGINE, error.name):
            end(f"`{name}` needs the engine ({error}): {REMEDY}", BadInput.exit_status)
        if is_of(TORCH, error.name):
            end(f"`{name}` needs PyTorch ({error}): {TORCH_REMEDY}", BadInput.exit_status)
        raise


def end(message: str, status: int) -> NoReturn:
    """End this process with a line on stderr."""
    print(f"midfill: {message}", file=sys.stderr)  # noqa: T201  # for the user
    sys.exit(status)


def _required(extra: str) -> list[str]:
    requirements = metadata.requires("midfill") or [] if version_of("midfill") else ["midfill"]
    wanted = [text for text in requirements if (f'extra == "{extra}"' if extra else "") in text]
    return [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in wanted if extra or "extra ==" not in text]
