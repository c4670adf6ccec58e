"""Converts a checkpoint of the Llama family that has midfill's own kind of tokenizer to GGUF, for llama.cpp.

    python bench/to_gguf.py MODEL FILE.gguf [--quantize PATH/TO/llama-quantize --type q8_0]

MODEL is "bundled" or a folder. Matrices are written in bfloat16, the rest in float32. The tokenizer must be a
byte-level BPE that splits text as Qwen2.5-Coder's or SmolLM's does, which llama.cpp knows: then `/infill` works.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from inference.training.interchange.to_gguf import write_gguf


def quantize(program: Path, source: Path, target: Path, kind: str) -> None:
    """Let llama-quantize write `target` from `source`."""
    subprocess.run([program, source, target, kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(
    model: Annotated[str, typer.Argument(help='"bundled" or a folder.')],
    file: Annotated[Path, typer.Argument(help="GGUF file to write.")],
    program: Annotated[Path | None, typer.Option("--quantize", help="llama-quantize.")] = None,
    kind: Annotated[str, typer.Option("--type", help="Quantized type that llama-quantize writes beside it.")] = "q8_0",
) -> None:
    """Convert a checkpoint."""
    write_gguf(model, file)
    print(file)
    if program is not None:
        smaller = file.with_suffix(f".{kind}.gguf")
        quantize(program, file, smaller, kind)
        print(smaller)


if __name__ == "__main__":
    typer.run(main)
