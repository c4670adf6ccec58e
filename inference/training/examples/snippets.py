"""Chooses snippets of other files of a package, as an editor's other open files give them."""

import re
from random import Random

from inference.training.corpus.corpus import Corpus
from protocol.messages import Snippet

MAX_LINES = 40
MIN_LINES = 5
CANDIDATES = 4
MOST = 3
_WORD = re.compile(r"[A-Za-z_]\w{3,}")


def pick_snippets(corpus: Corpus, document: int, text: str, max_chars: float, rng: Random) -> tuple[Snippet, ...]:
    """One to three snippets of the other documents of a package, of at most `max_chars` together.

    Half of the time each is the one of several that has the most words in common with `text`: files that are open
    together are related.
    """
    others = [index for index in corpus.package_of(document) if index != document]
    chosen: list[Snippet] = []
    words = set(_WORD.findall(text))
    for _ in range(rng.randint(1, MOST) if others else 0):
        count = CANDIDATES if rng.random() < 0.5 else 1
        found = [_cut(corpus, rng.choice(others), rng) for _ in range(count)]
        best = max(found, key=lambda snippet: len(words & set(_WORD.findall(snippet.text))))
        max_chars -= len(best.path) + len(best.text)
        if max_chars < 0:
            break
        if best.text.strip() and best not in chosen:
            chosen.append(best)
    return tuple(chosen)


def _cut(corpus: Corpus, document: int, rng: Random) -> Snippet:
    lines = corpus.document(document).splitlines(keepends=True)
    count = rng.randint(MIN_LINES, MAX_LINES)
    first = rng.randint(0, max(0, len(lines) - count))
    return Snippet(corpus.paths[document], "".join(lines[first : first + count]))
