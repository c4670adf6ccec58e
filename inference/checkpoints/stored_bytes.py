"""Reads the bytes of tensors from weights files, into memory of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inference.checkpoints.weights import StoredTensor
from protocol.errors import BadModel, bad_model


def read_stored(path: Path, start: int, count: int) -> NDArray[np.uint8]:
    """So many bytes of a weights file, in memory of their own; BadModel if the file does not have them any more.

    A process that maps the file ends with SIGBUS when another program cuts it, and computes with what one writes over it.
    """
    with bad_model(f"{path} cannot be read any more"):
        stored = np.fromfile(path, np.uint8, count, offset=start)
    if len(stored) < count:
        raise BadModel(f"{path} is shorter than when it was opened: load it again")
    return stored


def read_rows(path: Path, tensor: StoredTensor, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The stored bytes of these rows of a tensor, [rows, bytes of a row]; those between them are read, too."""
    first, last = int(rows.min()), int(rows.max())
    size = (tensor.stop - tensor.start) // tensor.shape[0]
    return read_stored(path, tensor.start + first * size, (last + 1 - first) * size).reshape(-1, size)[rows - first]
