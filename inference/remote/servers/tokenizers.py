"""Finds the tokenizer of a server's model, and checks that its tokens are the server's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS, open_checkpoint
from inference.checkpoints.hub import fetch_tokenizer, is_hub_name
from inference.checkpoints.local_models.names import path_of
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadModel, MidfillError
from protocol.settings import BUNDLED_MODEL

SAMPLE = """
def área(x: float) -> str:
\tif x >= 10_000 and not done:
        return f"{x:.2f} m²"  # 中文 — it's 123
"""
"""Text whose tokens differ between tokenizers: indentation, digits, contractions, and letters of other scripts."""
LEAD_TOKENS = 2
"""Tokens at the beginning that may differ: SentencePiece's servers put a space before the text."""


def find_tokenizer(model: str, places: tuple[str, ...], fim_format: str = AUTO) -> TextTokenizer:
    """The tokenizer of `model`; with "bundled", of the first of the server's `places` that has one.

    BadModel, with a remedy, if there is none.
    """
    if model != BUNDLED_MODEL:
        return open_tokenizer(model, fim_format)
    reasons = []
    for place in places:
        try:
            return open_tokenizer(place, fim_format)
        except MidfillError as error:
            reasons.append(str(error))
    raise BadModel(
        f"the engine's model {places[0] if places else ''!r} has no tokenizer that the core can read "
        f"({'; '.join(reasons) or 'the engine does not name its model'}): name the model's folder, or its name on the "
        "Hugging Face hub, with --model"
    )


def open_tokenizer(model: str, fim_format: str = AUTO) -> TextTokenizer:
    """The tokenizer of one of midfill's models, in a folder or a GGUF file, or on the hub; no weights are fetched.

    Raises BadModel if there is none.
    """
    folder = BUNDLED_FOLDERS.get(model) or path_of(model) or Path(model).expanduser()
    if folder.is_file() or (folder.is_dir() and not (folder / "tokenizer.json").is_file()):
        return open_checkpoint(folder, model).tokenizer(fim_format)
    if not folder.is_dir():
        if not is_hub_name(model):
            raise BadModel(f"{model!r} is neither a folder, nor a GGUF file, nor a name on the Hugging Face hub")
        folder = fetch_tokenizer(model)
        if folder.is_file():
            return open_checkpoint(folder, model).tokenizer(fim_format)
    told = _told(folder / "config.json")
    wanted = told.get("fim_format", AUTO) if fim_format == AUTO else fim_format
    return read_tokenizer(folder / "tokenizer.json", wanted, fragments_suffice=told.get("fragments_suffice"))


def disagreement(tokenizer: TextTokenizer, theirs: list[int]) -> str:
    """How the server's tokens of SAMPLE differ from the tokenizer's; empty if they agree."""
    ours = tokenizer.encode(SAMPLE).tolist()
    compared = len(ours) - LEAD_TOKENS
    if theirs[-compared:] == ours[LEAD_TOKENS:]:
        return ""
    return f"for one text the engine has {len(theirs)} tokens {theirs[:8]}…, and the tokenizer {len(ours)} {ours[:8]}…"


def _told(config: Path) -> dict[str, Any]:
    """What `midfill train` has written about the model; empty without a readable config."""
    try:
        parsed = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    told = parsed.get("midfill") if isinstance(parsed, dict) else None
    return told if isinstance(told, dict) else {}
