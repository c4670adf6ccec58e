"""The data of a run: collected once, with its tokenizer, and unchanged when the run is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from inference.checkpoints.checkpoint import Checkpoint, find_checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.text.fim import AUTO
from midfill_lab.training.corpus import Corpus, Manifest, copy_corpus, is_corpus, read_manifest, write_corpus
from midfill_lab.training.from_gguf import read_base
from midfill_lab.training.options import CheckpointError
from midfill_lab.training.sources import Sources, read_sources
from midfill_lab.training.vocabulary import END_OF_TEXT, MIDDLE, PREFIX, SUFFIX, Vocabulary, load_vocabulary, train_tokenizer
from protocol.errors import BadModel


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The options of a run's data; the paths are absolute.

    Attributes:
        folders: source files and folders of them, or a single corpus of `python -m midfill_lab.recipe corpus`.
        held_out: share of the files to hold out.
        start: the checkpoint whose tokenizer is used; None learns one of `vocabulary_size` tokens.
        add_fim_markers: adds midfill's markers to the checkpoint's tokenizer if it has none of any family.
    """

    folders: tuple[str, ...]
    held_out: float
    start: str | None = None
    fim_format: str = AUTO
    add_fim_markers: bool = False
    vocabulary_size: int = 8192


@dataclass(frozen=True, slots=True)
class Data:
    """A corpus in `folder` and the vocabulary to read it with."""

    folder: Path
    manifest: Manifest
    vocabulary: Vocabulary

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.json"


def trainable(start: str | None, output: Path) -> str | None:
    """The checkpoint to start from; a GGUF file is dequantized, once, into the output's folder `base`.

    Raises:
        BadModel: there is no such checkpoint, or a GGUF file of its kind cannot be trained from.
        CheckpointError: the output was started from another GGUF file.
    """
    if start is None:
        return None
    checkpoint = find_checkpoint(start)
    if not isinstance(checkpoint, GgufCheckpoint):
        return start
    base, note = output / "base", output / "base" / "source.json"
    found = checkpoint.path.stat()
    source = {"from": start, "bytes": found.st_size, "modified": found.st_mtime_ns}
    if not note.is_file():
        read_base(checkpoint.path, base)
        note.write_text(json.dumps(source) + "\n")  # the last that is written
    elif (known := json.loads(note.read_text())) != source:
        raise CheckpointError(
            f"{output} was started from {known['from']}, not from {start} as it is now: choose another --output"
        )
    return str(base)


def prepare_data(output: Path, options: DataOptions) -> Data:
    """The data of the run in `output`: collected now, or by an earlier start.

    Raises:
        BadInput: the folders cannot be trained on, or the run was started with other options.
    """
    folder = output / "corpus"
    if not (folder / "manifest.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        given = Path(options.folders[0])
        if len(options.folders) == 1 and is_corpus(given):
            fim_format = _write_tokenizer(folder / "tokenizer.json", given, options)
            _write_note(output, options, fim_format)
            copy_corpus(given, folder)
            return _open_data(output, options)
        sources = read_sources([Path(place) for place in options.folders], options.held_out)
        lines = [f"{file.path}\t{file.reason}\n" for file in sources.left_out]
        (output / "left-out.txt").write_text("".join(lines))
        fim_format = _write_tokenizer(folder / "tokenizer.json", sources, options)
        _write_note(output, options, fim_format)
        write_corpus(folder, sources.documents(), sources.manifest())
    return _open_data(output, options)


def _open_data(output: Path, options: DataOptions) -> Data:
    """The prepared data; CheckpointError if it was made with other options."""
    noted: dict[str, Any] = json.loads(_note(output).read_text())
    fim_format = noted.pop("found_format")
    for name, value in json.loads(json.dumps(asdict(options))).items():
        if noted[name] != value:
            raise CheckpointError(f"{output} was started with {name} = {noted[name]}, not {value}: choose another --output")
    folder = output / "corpus"
    return Data(folder, read_manifest(folder), load_vocabulary(folder / "tokenizer.json", fim_format))


def _note(output: Path) -> Path:
    return output / "data.json"


def _write_note(output: Path, options: DataOptions, fim_format: str) -> None:
    _note(output).write_text(json.dumps({**asdict(options), "found_format": fim_format}, indent=1) + "\n")


def _texts(sources: Sources | Path) -> Iterator[str]:
    """What a tokenizer is learned from."""
    if isinstance(sources, Sources):
        return (file.text for file in sources.train)
    corpus = Corpus(sources, "train")
    return (corpus.document(index) for index in range(len(corpus)))


def _write_tokenizer(path: Path, sources: Sources | Path, options: DataOptions) -> str:
    """Learn a tokenizer or take the checkpoint's; the name of its FIM format."""
    if options.start is None:
        train_tokenizer(_texts(sources), options.vocabulary_size).save(str(path))
        return load_vocabulary(path).format.name
    checkpoint = find_checkpoint(options.start)
    try:
        fim_format = checkpoint.tokenizer(options.fim_format).format.name
    except BadModel as error:
        if not options.add_fim_markers:
            raise BadModel(f"{error}; --add-fim-markers adds them, to be learned") from error
        _with_markers(checkpoint).save(str(path))
        return load_vocabulary(path).format.name
    path.write_bytes((checkpoint.folder / "tokenizer.json").read_bytes())
    return fim_format


def _with_markers(checkpoint: Checkpoint) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(checkpoint.folder / "tokenizer.json"))
    names = (END_OF_TEXT, PREFIX, MIDDLE, SUFFIX)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    return tokenizer
