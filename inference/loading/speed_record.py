"""Keeps what a model's speed on this machine is, in a small file, and recommends `bundled` or `tiny` by it."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from inference.backends.cpu.threads import usable_threads
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.engine.speed_test import Speed
from inference.loading.options import EngineOptions
from protocol.settings import BUNDLED_MODEL, TINY_MODEL

MOST_PROMPT_MS = 2000.0
"""For PROMPT_TOKENS; the default window, six times as long, is then computed in 12 s when a file is opened."""
MOST_TOKEN_MS = 40.0
"""A line of 25 tokens then takes a second."""

log = logging.getLogger(__name__)


class SpeedRecord:
    """The file with the speed of one model with one quantization on one device of this machine."""

    def __init__(self, folder: Path, options: EngineOptions) -> None:
        # The folder of a model of ours differs between its editions; a home folder may be shared between machines.
        model = BUNDLED_FOLDERS.get(options.model, options.model)
        machine = (platform.node(), platform.machine(), usable_threads(), version("midfill"))
        key = (str(model), options.device, options.dtype, options.weights, options.threads, options.kernel, *machine)
        self.model = options.model
        self._path = folder / f"speed-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.json"

    def read(self) -> Speed | None:
        """The speed that was measured; None if there is none, or the file is damaged."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            fields = json.loads(self._path.read_text(encoding="utf-8"))
            return Speed(float(fields["prompt_ms"]), float(fields["token_ms"]))
        return None

    def keep(self, speed: Speed) -> Speed:
        """Write the best of this and earlier measurements, and return it; a disk that refuses is only logged."""
        best = speed.best_of(self.read())
        partial = self._path.with_suffix(".partial")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial.write_text(json.dumps(asdict(best)), encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            log.warning("the speed of %s cannot be kept: %s", self.model, error)
        return best


def is_fast(speed: Speed) -> bool:
    """Whether suggestions come soon enough to be worth waiting for."""
    return speed.prompt_ms <= MOST_PROMPT_MS and speed.token_ms <= MOST_TOKEN_MS


def recommended(bundled: Speed) -> str:
    """The one of our own models that suits a machine where `bundled` has this speed."""
    return BUNDLED_MODEL if is_fast(bundled) else TINY_MODEL


def advice(model: str, speed: Speed | None) -> str:
    """What to tell the user of `bundled` on a machine that is too slow for it; empty for any other."""
    if model != BUNDLED_MODEL or speed is None or is_fast(speed):
        return ""
    return f"{model} is slow on this machine ({speed}): the model {TINY_MODEL} is faster"
