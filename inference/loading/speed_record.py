"""Keeps a model's speed on this machine, as its answers took, in a small file; recommends `bundled` or `tiny` by it."""

from __future__ import annotations

import hashlib
import logging
import platform
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import msgspec

from inference.backends.cpu.library import usable_threads
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.loading.options import EngineOptions
from protocol.messages import Usage
from protocol.settings import BUNDLED_MODEL, TINY_MODEL
from protocol.version import own_version

PROMPT_TOKENS = 512
MOST_PROMPT_MS = 2000.0
"""For PROMPT_TOKENS; the default window, six times as long, is then computed in 12 s when a file is opened."""
MOST_TOKEN_MS = 40.0
"""A line of 25 tokens then takes a second."""
_ANSWERS = 15
_ENOUGH_ANSWERS = 5
"""Fewer may all have waited for other programs, or for weights that were read from disk."""
_LEAST_PROMPT_TOKENS = 64
_LEAST_TOKENS = 4

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Speed:
    """Milliseconds for a prompt of PROMPT_TOKENS, and for one token behind it."""

    prompt_ms: float
    token_ms: float

    def __str__(self) -> str:
        return f"{PROMPT_TOKENS} prompt tokens in {self.prompt_ms / 1e3:.2g} s, a token in {self.token_ms:.2g} ms"


class SpeedRecord:
    """The speed of one model with one quantization on one device of this machine: the fast ones of its last answers."""

    def __init__(self, folder: Path, options: EngineOptions) -> None:
        # The folder of a model of ours differs between its editions; a home folder may be shared between machines.
        model = BUNDLED_FOLDERS.get(options.model, options.model)
        machine = (platform.node(), platform.machine(), usable_threads(), own_version())
        key = (str(model), options.device, options.dtype, options.weights, options.threads, options.kernel, *machine)
        self.model = options.model
        self._path = folder / f"speed-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.json"
        self._prompts = deque[float](maxlen=_ANSWERS)
        self._tokens = deque[float](maxlen=_ANSWERS)
        self._kept = self._read()

    @property
    def speed(self) -> Speed | None:
        """By the last answers; until there are enough, as it was kept, or None."""
        if min(len(self._prompts), len(self._tokens)) < _ENOUGH_ANSWERS:
            return self._kept
        return Speed(_fast(self._prompts), _fast(self._tokens))

    def note(self, usage: Usage) -> None:
        """Take the times of an answer; a few tokens tell too little."""
        if usage.recomputed_tokens >= _LEAST_PROMPT_TOKENS:
            self._prompts.append(usage.prefill_ms / usage.recomputed_tokens * PROMPT_TOKENS)
        if usage.generated_tokens >= _LEAST_TOKENS:
            self._tokens.append(usage.decode_ms / usage.generated_tokens)

    def keep(self) -> None:
        """Write the speed for later cores and the doctor; a disk that refuses is only logged."""
        if self.speed in (None, self._kept):
            return
        self._kept = self.speed
        partial = self._path.with_suffix(".partial")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.encode(self._kept))
            partial.replace(self._path)
        except OSError as error:
            log.warning("the speed of %s cannot be kept: %s", self.model, error)

    def _read(self) -> Speed | None:
        """The speed in the file; None if there is none, or the file is damaged."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self._path.read_bytes(), type=Speed)
        return None


def _fast(times: Sequence[float]) -> float:
    """Their lower quartile: slower answers have waited for other requests or programs."""
    return quantiles(times, n=4)[0]


def is_fast(speed: Speed) -> bool:
    """Whether suggestions come soon enough to be worth waiting for."""
    return speed.prompt_ms <= MOST_PROMPT_MS and speed.token_ms <= MOST_TOKEN_MS


def recommended(bundled: Speed) -> str:
    """The one of our own models that suits a machine where `bundled` has this speed."""
    return BUNDLED_MODEL if is_fast(bundled) else TINY_MODEL


def advice(model: str, speed: Speed | None) -> str:
    """Advice for the user of `bundled` on a machine that is too slow for it; empty for any other."""
    if model != BUNDLED_MODEL or speed is None or is_fast(speed):
        return ""
    return f"{model} is slow on this machine ({speed}): the model {TINY_MODEL} is faster"
