"""Whether what the model writes reaches the document unharmed: an author's own text is played as the model's.

The language server's parts treat the text; what is shown is accepted, as an editor does.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, get_args

import msgspec
from rich.table import Table

from inference.text.stops import Stops
from lsp_server.documents.documents import Document, Edit, Position, end_of
from lsp_server.documents.languages import language_id_of
from lsp_server.documents.positions import ClientPosition
from lsp_server.features.suggestions import accepted_command, inline_item
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest, Usage
from protocol.settings import Settings

Kind = Literal["start", "middle", "closed", "block", "indent", "case"]
KINDS: tuple[Kind, ...] = ("start", "middle", "closed", "block", "indent")

_FILE_BYTES = range(100, 200_001)
_LEAST_LINES, _LONGEST_LINE = 5, 2_000
_SKIPPED = re.compile(r"min\.|lock")
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "vendor"}
_TRIES = 12  # of each kind in a file, until there are enough places
_LONGEST_BLOCK = 30  # lines
_CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
_WORD_BOUNDARY = re.compile(r"\b")
_CLOSING_LINE = re.compile(r"[)\]}]|</|\\end\{|(?:end\w*|fi|done|esac)\b")
_TAB_COLUMNS = 8  # columns of a tab, to compare lines of one file
_CURSOR = "║"
_FIELDS = ("name", "language", "model", "expected")
Verdict = Literal["as written", "nothing", "cut", "doubled closer", "white space", "other"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_CLOSERS = ")]}\"'`"
_URI = "untitled:fidelity"
_NO_USAGE = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Place:
    """A document with a cursor between `head` and `tail`, what the model writes there, and the document to be had."""

    name: str
    language_id: str
    kind: Kind
    head: str
    tail: str
    model: str
    expected: str


def places_in(folders: Sequence[Path], limit: int, seed: int) -> list[Place]:
    """At most `limit` places of each language and kind, the same ones for the same seed and files.

    BadInput if a folder has no source files.
    """
    files = sorted((name, text) for folder in folders for name, text in _texts(folder))
    if not files:
        raise BadInput(f"no source files in {', '.join(map(str, folders))}")
    Random(seed).shuffle(files)
    found: Counter[tuple[str, Kind]] = Counter()
    places = []
    for name, text in files:
        language_id, rng = language_id_of(name.rsplit("/", 1)[-1]), Random(f"{seed}/{name}")
        for kind in KINDS:
            for _ in range(_TRIES):
                if found[language_id, kind] == limit:
                    break
                if (place := _CUTTERS[kind](f"{name} ({kind})", language_id, text.split("\n"), rng)) is not None:
                    found[language_id, kind] += 1
                    places.append(place)
    return places


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    if not folder.is_dir():
        raise BadInput(f"{folder} is neither a folder nor a file of cases")
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS]
        for name in names:
            file = Path(root, name)
            path = file.relative_to(folder).as_posix()
            if _SKIPPED.search(path) or not file.is_file() or file.stat().st_size not in _FILE_BYTES:
                continue
            try:
                text = file.read_bytes().decode().replace("\r\n", "\n")
            except (OSError, UnicodeDecodeError):
                continue
            lines = text.split("\n")
            if "\r" not in text and len(lines) >= _LEAST_LINES and max(map(len, lines)) <= _LONGEST_LINE:
                yield f"{folder.name}/{path}", text


def _cut_line(
    kind: Kind, place: Callable[[str, Random], int | None], keeps: int
) -> Callable[[str, str, list[str], Random], Place | None]:
    """A cutter that takes the rest of a line away, but for `keeps` characters of it."""

    def cut(name: str, language_id: str, lines: list[str], rng: Random) -> Place | None:
        number = rng.randrange(1, len(lines))
        line = lines[number].rstrip()
        if not line or any(line.count(opener) != line.count(closer) for opener, closer in _CLOSER_OF.items()):
            return None
        column = place(line, rng)
        if column is None or not line[column:].strip():
            return None
        above, below = "\n".join(lines[:number]) + "\n", "".join(f"\n{rest}" for rest in lines[number + 1 :])
        closer = _closer_at(line, column) if keeps else ""
        head, tail = above + line[:column], closer + below
        return Place(f"{name}:{number + 1}", language_id, kind, head, tail, line[column:], above + line + below)

    return cut


def _start(line: str, _rng: Random) -> int:
    return len(line) - len(line.lstrip())


def _middle(line: str, rng: Random) -> int | None:
    begin = _start(line, rng)
    boundaries = [found.start() for found in _WORD_BOUNDARY.finditer(line) if begin < found.start() < len(line)]
    return rng.choice(boundaries) if boundaries else None


def _closed(line: str, rng: Random) -> int | None:
    places = [column for column in range(1, len(line)) if _closer_at(line, column)]
    return rng.choice(places) if places else None


def _closer_at(line: str, column: int) -> str:
    """What an editor would have put behind the opener before `column`, if the line closes it; else empty."""
    opener, behind = line[column - 1], line[column:]
    if opener in _CLOSER_OF:
        depth = 1
        for character in behind:
            depth += (character == opener) - (character == _CLOSER_OF[opener])
            if depth == 0:
                return _CLOSER_OF[opener]
    elif opener in "\"'`" and not line[: column - 1].count(opener) % 2 and behind.count(opener) % 2:
        return "" if line[column - 2 : column - 1].isalnum() else opener
    return ""


def _block(name: str, language_id: str, lines: list[str], rng: Random) -> Place | None:
    """Behind a header, or on a blank line in its body: the lines up to the block's end."""
    number = rng.randrange(len(lines))
    end = _block_end(lines, number)
    if end is None:
        return None
    head = number if rng.random() < 0.5 else number + 1
    body = [_depth(line) for line in lines[number + 1 : end] if line.strip() and _depth(line) > _depth(lines[number])]
    if head > number and (not lines[head].strip() or _depth(lines[head]) > min(body)):
        return None  # a blank line, or an aligned one, which begins nothing
    return _cut_lines(name, language_id, "block", lines, head, end, begins_line=head > number)


def _indent(name: str, language_id: str, lines: list[str], rng: Random) -> Place | None:
    """At the start of a line, or of its text, some lines; in one of three files nothing else is indented."""
    number = rng.randrange(1, len(lines))
    end = min(len(lines), number + rng.randrange(1, 8))
    if not lines[number].strip() or _depth(lines[number]) > min(map(_depth, filter(str.strip, lines[number:end]))):
        return None
    if rng.random() < 1 / 3:
        above = next((row for row in range(number - 1, -1, -1) if lines[row].strip() and not _depth(lines[row])), 0)
        lines, number, end = lines[above:end], number - above, end - above
        if any(map(_depth, lines[:number])):
            return None
    return _cut_lines(name, language_id, "indent", lines, number, end, begins_line=rng.random() < 0.5)


def _cut_lines(name: str, language_id: str, kind: Kind, lines: list[str], first: int, end: int, *, begins_line: bool) -> Place:
    """Take the lines from `first` to `end` away: all of the first with `begins_line`, else what stands behind it."""
    while not lines[end - 1].strip():
        end -= 1
    taken = "\n".join(lines[first:end]).rstrip()
    line = lines[first].rstrip()
    kept = len(line) - len(line.lstrip()) if begins_line else len(line)
    if kind == "indent":
        kept = kept if begins_line else 0
    above, below = "".join(f"{row}\n" for row in lines[:first]), "".join(f"\n{row}" for row in lines[end:])
    head = above + taken[:kept]
    return Place(f"{name}:{first + 1}", language_id, kind, head, below, taken[kept:], above + taken + below)


def _block_end(lines: Sequence[str], header: int) -> int | None:
    """The line behind the block of this header: deeper lines, and a line that closes it; None if it has none."""
    if not lines[header].strip():
        return None
    depth, end = _depth(lines[header]), header + 1
    while end < len(lines) and (not lines[end].strip() or _depth(lines[end]) > depth):
        end += 1
    body = [line for line in lines[header + 1 : end] if line.strip()]
    if not body or end - header > _LONGEST_BLOCK:
        return None
    if end < len(lines) and _depth(lines[end]) == depth and _CLOSING_LINE.match(lines[end].strip()):
        line = lines[end]
        opens = any(line.count(opener) > 0 for opener in _CLOSER_OF)
        return None if opens else end + 1
    return end


def _depth(line: str) -> int:
    space = line[: len(line) - len(line.lstrip())]
    return len(space.expandtabs(_TAB_COLUMNS))


_CUTTERS: Mapping[Kind, Callable[[str, str, list[str], Random], Place | None]] = {
    "start": _cut_line("start", _start, 0),
    "middle": _cut_line("middle", _middle, 0),
    "closed": _cut_line("closed", _closed, 1),
    "block": _block,
    "indent": _indent,
}


def read_cases(file: Path) -> list[Place]:
    """The cases of a file; BadInput, naming the case, if one is malformed.

    A case has the lines `name:`, `language:`, `model:` and `expected:` (both JSON strings), a line `---`, and the
    document with `║` at the cursor; `%%%` stands between cases. Lines in front that begin with `#` are comments.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read as a file of cases: {error}") from error
    return [_case(f"{file.name}, case {number}", part) for number, part in enumerate(text.split("%%%\n"), 1)]


def _case(where: str, part: str) -> Place:
    header, separator, document = part.partition("---\n")
    lines = [line for line in header.splitlines() if line.strip() and not line.startswith("#")]
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if not separator or tuple(fields) != _FIELDS:
        raise BadInput(f"{where}: wanted are the lines {', '.join(_FIELDS)} and ---, found {', '.join(fields) or 'none'}")
    if document.count(_CURSOR) != 1:
        raise BadInput(f"{where}: the document has {document.count(_CURSOR)} cursors ({_CURSOR}), not one")
    try:
        model, expected = (msgspec.json.decode(fields[name], type=str) for name in ("model", "expected"))
    except msgspec.DecodeError as error:
        raise BadInput(f"{where}: model and expected are JSON strings: {error}") from error
    head, _, tail = document.partition(_CURSOR)
    return Place(f"{where} ({fields['name']})", fields["language"], "case", head, tail, model, expected)


def verdict(place: Place, accepted: str | None) -> Verdict:
    """What became of the model's text; `accepted` is the document afterwards, None without a suggestion."""
    if (place.head + place.tail if accepted is None else accepted) == place.expected:
        return "as written"
    if accepted is None:
        return "nothing"
    if "".join(accepted.split()) == "".join(place.expected.split()):
        return "white space"
    same = _common_length(accepted, place.expected)
    if accepted[same : same + 1] in tuple(_CLOSERS) and accepted[same + 1 :] == place.expected[same:]:
        return "doubled closer"
    behind = len(place.tail.lstrip(_CLOSERS))
    if len(accepted) < len(place.expected) and same >= len(accepted.rstrip()) - behind - len(_CLOSERS):
        return "cut"
    return "other"


def _common_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def row_object(place: Place, accepted: str | None, said: Verdict) -> dict[str, object]:
    """A place as JSON."""
    where: dict[str, object] = {"place": place.name, "language": place.language_id, "kind": place.kind, "verdict": said}
    return where if said == "as written" else {**where, "model": place.model, "accepted": accepted}


Counts = Mapping[tuple[str, Kind], Counter[Verdict]]


def count(verdicts: Iterable[tuple[Place, Verdict]]) -> dict[tuple[str, Kind], Counter[Verdict]]:
    """How often each verdict fell, by language and kind of place."""
    counts: dict[tuple[str, Kind], Counter[Verdict]] = {}
    for place, said in verdicts:
        counts.setdefault((place.language_id, place.kind), Counter())[said] += 1
    return counts


def table(counts: Counts) -> Table:
    """A row for each language and kind of place, and a row for each kind over all languages."""
    shown = Table(title="What the model writes, after acceptance")
    for heading in ("language", "place", "n", "% as written", *VERDICTS[1:]):
        shown.add_column(heading, justify="left" if heading in ("language", "place") else "right")
    for (language_id, kind), found in sorted(counts.items()):
        shown.add_row(language_id, kind, *_figures(found))
    shown.add_section()
    for kind in sorted({kind for _, kind in counts}):
        sums = sum((found for (_, other), found in counts.items() if other == kind), Counter[Verdict]())
        shown.add_row("all", kind, *_figures(sums))
    return shown


def _figures(found: Counter[Verdict]) -> list[str]:
    share = 100 * found["as written"] / found.total()
    return [str(found.total()), f"{share:.1f}", *(str(found[said] or "") for said in VERDICTS[1:])]


def play(places: Iterable[Place], settings: Settings) -> Iterator[tuple[Place, str | None, Verdict]]:
    """For each place the document after acceptance, None without a suggestion, and what became of the text."""
    with asyncio.Runner() as runner:
        player = Player(settings)
        for place in places:
            accepted = runner.run(player.accepted(place))
            yield place, accepted, verdict(place, accepted)


class AuthorCore:
    """A core whose model writes a given text, which ends by the core's own rules."""

    ready = True
    chars_per_token = 3.0

    def __init__(self) -> None:
        self.text = ""

    async def complete(self, request: CompletionRequest) -> Completion:
        if not request.max_tokens:
            return Completion("", "length", _NO_USAGE)
        stops = Stops(request.stop, request.stop_texts, request.prompt.suffix)
        for length in range(1, len(self.text) + 1):
            if (end := stops.find(self.text[:length])) is not None:
                return Completion(self.text[:end], "stop", _NO_USAGE, mean_logprob=0.0)
        text, reason = stops.last(self.text, "stop")
        return Completion(text, reason, _NO_USAGE, mean_logprob=0.0)

    def forget(self, session: str) -> None:
        """There is nothing to forget."""

    def release(self, session: str) -> None:
        """There is nothing to release."""


class Player:
    """One client's editing session, without an editor."""

    def __init__(self, settings: Settings) -> None:
        self._core = AuthorCore()
        self._session = EditingSession(self._core, settings, "fidelity", lambda _: None)
        self._version = 0

    async def accepted(self, place: Place) -> str | None:
        """The document after the suggestion at this place was accepted; None if there was none."""
        self._core.text = place.model
        self._version += 1
        opened = self._session.open(_URI, place.language_id, self._version, place.head + place.tail)
        try:
            cursor = end_of(Position(0, 0), place.head)
            insertions = await self._session.suggest(opened, Query(cursor))
            if not insertions:
                return None
            codec = self._session.documents.codec
            item = inline_item(codec, opened.document, cursor, insertions[0], accepted_command(0, 0))
            document = Document.from_text(_URI, place.language_id, 1, opened.document.text)
            assert item.range is not None
            start, end = (
                codec.decode(document, ClientPosition(edge.line, edge.character)) for edge in (item.range.start, item.range.end)
            )
            document.apply(Edit(start, end, str(item.insert_text)))
            return document.text
        finally:
            self._session.close(_URI)
