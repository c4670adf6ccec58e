"""Logs one line of fields per request, without text of documents."""

from __future__ import annotations

import logging
import secrets
import time
from hashlib import blake2s

from inference.scheduling.job_queue import Job, Outcome, kind_of, outcome_of
from protocol.errors import MidfillError
from protocol.messages import Completion

_USAGE = ("prompt_tokens", "recomputed_tokens", "generated_tokens", "queue_ms", "prefill_ms", "decode_ms")

log = logging.getLogger(__name__)


class RequestLog:
    """For `--log-format json`, whose lines have these fields. Thread-safe."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)  # sessions are named after files: lines can be compared within a run only

    def observe(self, job: Job, answer: Outcome) -> None:
        fields: dict[str, object] = {
            "user": job.user,
            "session": blake2s(job.request.session.encode(), digest_size=8, key=self._key).hexdigest(),
            "kind": kind_of(job.request),
            "outcome": outcome_of(answer),
            "ms": round((time.perf_counter() - job.submitted) * 1e3, 1),
        }
        if isinstance(answer, Completion):
            fields |= {name: round(getattr(answer.usage, name), 1) for name in _USAGE}
        elif isinstance(answer, MidfillError):
            fields["error"] = answer.code
        log.info("request", extra=fields)
