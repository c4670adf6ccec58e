"""The errors that midfill raises on purpose.

MidfillError
├── BadInput              the caller sent something that cannot be used (offending value in the message)
│   ├── BadSettings       an unknown or ill-typed setting
│   ├── BadTrace          a file that is not a recorded session
│   └── BadModel          a checkpoint that cannot be used
├── CoreUnavailable       no core answers: not running, died, or unreachable
│   └── Unauthorized      the core refused the token
├── PortInUse             the address to listen on is taken
└── Cancelled             the request was cancelled or superseded
"""

from __future__ import annotations


class MidfillError(Exception):
    """Base of all; `code` is its name on the wire."""

    code = "internal"


class BadInput(MidfillError):
    code = "bad_input"


class BadSettings(BadInput):
    code = "bad_settings"


class BadTrace(BadInput):
    code = "bad_trace"


class BadModel(BadInput):
    code = "bad_model"


class CoreUnavailable(MidfillError):
    code = "core_unavailable"


class Unauthorized(CoreUnavailable):
    code = "unauthorized"


class PortInUse(MidfillError):
    code = "port_in_use"


class Cancelled(MidfillError):
    code = "cancelled"
