"""The GPU path, whole: on a simulated CUDA, or on a real one with `make test-gpu`."""

from __future__ import annotations
