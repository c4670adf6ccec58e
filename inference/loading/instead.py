"""llama-server in place of midfill's own engine: for GGUF files of this machine that the own engine does not run."""

from __future__ import annotations

import shutil

from inference.checkpoints.checkpoint import find_local_gguf
from inference.checkpoints.gguf.file import read_headers
from inference.checkpoints.gguf.tokenizer import gguf_tokenizer
from inference.loading.main_memory import main_memory
from inference.text.fim import AUTO
from protocol.errors import BadModel, MidfillError

REMEDY = "llama-server may run it: install llama.cpp, with its llama-server on the PATH"


def llama_server_for(model: str, problem: str, fim_format: str = AUTO) -> str:
    """The llama-server that may run `model`, which midfill's own engine does not run because of `problem`.

    Empty if the model is no GGUF file, is damaged, is larger than the free memory, or has a tokenizer that midfill
    cannot use. BadModel, with the problem and a remedy, if only llama-server is missing.
    """
    try:
        file = find_local_gguf(model)
        if file is None:
            return ""
        parts = read_headers(file)
        if sum(part.path.stat().st_size for part in parts) > main_memory().available:
            return ""
        gguf_tokenizer(parts[0], fim_format)
    except (MidfillError, OSError):
        return ""
    if (program := shutil.which("llama-server")) is None:
        raise BadModel(f"{problem}. {REMEDY}")
    return program
