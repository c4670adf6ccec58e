"""The errors that midfill raises on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MidfillError(Exception):
    """Base of all; `code` is its name on the wire, `exit_status` the exit status of a command that it ends."""

    code = "internal"
    exit_status = 1


class BadInput(MidfillError):
    """The caller sent invalid input; the message has the offending value."""

    code = "bad_input"
    exit_status = 2  # as for an unknown option: the same command would fail again


class BadSettings(BadInput):
    """A setting is unknown or has an invalid value."""

    code = "bad_settings"


class BadTrace(BadInput):
    """A file is not a recorded session."""

    code = "bad_trace"


class BadModel(BadInput):
    """A checkpoint is unusable."""

    code = "bad_model"


@contextmanager
def bad_model(complaint: str) -> Iterator[None]:
    """Turns whatever the reading of a model's file raises into a BadModel: the complaint, and the cause in one line.

    Files come from anywhere, and libraries raise at them what they like.
    """
    try:
        yield
    except MidfillError:
        raise
    except Exception as error:
        told = " ".join(f"{error}".split())
        cause = told if isinstance(error, OSError | ValueError) and told else f"{type(error).__name__} {told}".rstrip()
        raise BadModel(f"{complaint}: {cause:.500}") from error


class CoreUnavailable(MidfillError):
    """No core answers: it is not running, died, or cannot be reached."""

    code = "core_unavailable"


class Unauthorized(CoreUnavailable):
    """The core refused the token, or did not prove that it knows it."""

    code = "unauthorized"


class EngineUnavailable(MidfillError):
    """The engine that the core passes its requests to does not answer, or refuses them."""

    code = "engine_unavailable"


class DeviceLost(MidfillError):
    """The GPU fails every call in this process; a new process may use it again."""

    code = "device_lost"


class CoreSilent(CoreUnavailable):
    """The core accepts connections but answers nothing."""

    code = "core_silent"


class CoreBlocked(CoreUnavailable):
    """A running core can be neither used nor replaced now; this may change without action by the user."""

    code = "core_blocked"


class PortInUse(MidfillError):
    """The address to listen on is taken."""

    code = "port_in_use"


class AlreadyServed(MidfillError):
    """A running or starting core already serves the model."""

    code = "already_served"
    exit_status = 3  # distinguishes a lost race to start a core from a failure


class Busy(MidfillError):
    """A limit of this user or client is reached; it can try again after `retry_after_s` seconds."""

    code = "busy"
    retry_after_s = 1


class Cancelled(MidfillError):
    """The request was cancelled or superseded."""

    code = "cancelled"


def error_from_code(code: str, message: str) -> MidfillError:
    """The error of the class with this `code`; a plain MidfillError for an unknown code."""
    pending = [MidfillError]
    while pending:
        kind = pending.pop()
        if kind.code == code:
            return kind(message)
        pending.extend(kind.__subclasses__())
    return MidfillError(message)
