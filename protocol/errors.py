"""The errors that midfill raises on purpose.

MidfillError
├── BadInput              the caller sent something that cannot be used (offending value in the message)
│   ├── BadSettings       an unknown or ill-typed setting
│   ├── BadTrace          a file that is not a recorded session
│   └── BadModel          a checkpoint that cannot be used
├── CoreUnavailable       no core answers: not running, died, or unreachable
│   ├── Unauthorized      the core refused the token, or does not know it
│   ├── CoreSilent        the core accepts connections but answers nothing
│   └── CoreBlocked       a running core can be neither used nor replaced
├── DeviceLost            the GPU fails every call: only another process can use it again
├── PortInUse             the address to listen on is taken
├── AlreadyServed         a core that runs serves the model already
├── Busy                  too many requests of this client wait already
└── Cancelled             the request was cancelled or superseded
"""

from __future__ import annotations


class MidfillError(Exception):
    """Base of all; `code` is its name on the wire, `exit_status` that of a command which it ends."""

    code = "internal"
    exit_status = 1


class BadInput(MidfillError):
    """The caller sent something that cannot be used."""

    code = "bad_input"
    exit_status = 2  # as an unknown option has it: the same command would fail again


class BadSettings(BadInput):
    """A setting is unknown or has a value that it cannot have."""

    code = "bad_settings"


class BadTrace(BadInput):
    """A file is not a recorded session."""

    code = "bad_trace"


class BadModel(BadInput):
    """A checkpoint cannot be used."""

    code = "bad_model"


class CoreUnavailable(MidfillError):
    """No core answers: it is not running, died, or cannot be reached."""

    code = "core_unavailable"


class Unauthorized(CoreUnavailable):
    """The core refused the token, or does not prove that it knows it."""

    code = "unauthorized"


class DeviceLost(MidfillError):
    """The GPU fails every call, and only another process can use it again."""

    code = "device_lost"


class CoreSilent(CoreUnavailable):
    """The core accepts connections but answers nothing."""

    code = "core_silent"


class CoreBlocked(CoreUnavailable):
    """A core runs that can be neither used nor replaced now; this may change without the user's help."""

    code = "core_blocked"


class PortInUse(MidfillError):
    """The address to listen on is taken."""

    code = "port_in_use"


class AlreadyServed(MidfillError):
    """A core that runs, or is about to, serves the model already."""

    code = "already_served"
    exit_status = 3  # tells a language server that lost the race to start one from a failure


class Busy(MidfillError):
    """Too many requests of this client wait already; the client can try again in a second."""

    code = "busy"


class Cancelled(MidfillError):
    """The request was cancelled or superseded."""

    code = "cancelled"


def error_from_code(code: str, message: str) -> MidfillError:
    """The error whose class has this `code`; a plain MidfillError for a code that this version does not know."""
    pending = [MidfillError]
    while pending:
        kind = pending.pop()
        if kind.code == code:
            return kind(message)
        pending.extend(kind.__subclasses__())
    return MidfillError(message)
