"""Errors of connections in the user's words."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from lsp_server.core.network_errors import in_words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "certificate verify failed"),
        (OSError("Multiple exceptions"), "Multiple exceptions"),
        (ValueError("no URL"), "no URL"),
    ],
)
def test_says_what_went_wrong(error: Exception, words: str) -> None:
    assert words in in_words(error)
    assert "Errno" not in in_words(error)
