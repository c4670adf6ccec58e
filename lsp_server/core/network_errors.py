"""Words for the errors of connections, in messages to the user."""

from __future__ import annotations

import os
import socket
import ssl


def in_words(error: Exception) -> str:
    """What went wrong, without numbers of errors and calls: asyncio's text names both."""
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno).lower()
    if isinstance(error, socket.gaierror):
        return (error.strerror or str(error)).lower()
    return str(error)
