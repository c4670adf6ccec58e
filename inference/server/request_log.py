"""Logs one line of fields per request, without text of documents."""

from __future__ import annotations

import logging
import secrets
import time
from hashlib import blake2s

from inference.engine.request import Request
from protocol.errors import MidfillError
from protocol.messages import Completion

_USAGE = ("prompt_tokens", "recomputed_tokens", "generated_tokens", "queue_ms", "prefill_ms", "decode_ms")

log = logging.getLogger(__name__)


class RequestLog:
    """For `--log-format json`, whose lines have these fields. Thread-safe."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)  # sessions are named after files: lines can be compared within a run only

    def observe(self, request: Request) -> None:
        outcome = request.outcome
        fields: dict[str, object] = {
            "user": request.user,
            "session": blake2s(request.spec.session.encode(), digest_size=8, key=self._key).hexdigest(),
            "kind": request.kind,
            "outcome": request.result,
            "ms": round((time.perf_counter() - request.submitted) * 1e3, 1),
        }
        if isinstance(outcome, Completion):
            fields |= {name: round(getattr(outcome.usage, name), 1) for name in _USAGE}
        elif isinstance(outcome, MidfillError):
            fields["error"] = outcome.code
        log.info("request", extra=fields)
