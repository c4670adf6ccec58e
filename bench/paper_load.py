"""The load of the EFIM paper's protocol: files, and every user's request of every round."""

from __future__ import annotations

import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from inference.text.tokenization import TextTokenizer
from protocol.messages import CompletionRequest, Prompt
from protocol.settings import Strategy


@dataclass(frozen=True, slots=True)
class Load:
    """The load: every user's file, and the number of rounds."""

    files: tuple[str, ...]
    rounds: int
    max_new_tokens: int

    def request(self, strategy: Strategy, user: int, number: int) -> CompletionRequest:
        """A user's request of a round, counted from 0."""
        text = self.files[user]
        half = len(text) // 2
        step = half / (self.rounds + 2)  # a fourteenth of the file, in five rounds
        first, typed = int(step), int(step * (number + 2))
        prompt = Prompt(text[:typed], text[half:], order="spm" if strategy == "spm" else "psm")
        if strategy == "efim":
            prompt = Prompt(text[:first], text[half:], increment=text[first:typed])
        return CompletionRequest(f"user-{user}", prompt, self.max_new_tokens, reuse=strategy != "none")


def files_of_length(tokenizer: TextTokenizer, count: int, tokens: tuple[int, int]) -> tuple[str, ...]:
    """`count` modules of the standard library whose number of tokens is within `tokens`; the same at every call."""
    shortest, longest = tokens
    texts = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if shortest <= tokenizer.count_tokens(text) <= longest:
            texts.append(text)
    return tuple(random.Random(0).sample(texts, count))
