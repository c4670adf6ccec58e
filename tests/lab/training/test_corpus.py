from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_lab.training.corpus import Corpus, Document, Manifest, PackageRecord, read_manifest, write_corpus
from midfill_lab.training.options import CorpusError

TEXTS = ["first = 1\nsecond = 2\n", "größe = 'ß€😀'\n\nx\n", "last\n"]
DOCUMENTS = [
    Document(text, package, f"{package}/{index}.py") for index, (text, package) in enumerate(zip(TEXTS, "aab", strict=True))
]
MANIFEST = Manifest((PackageRecord("a", "1", "MIT", "train", 3, 40),), {"size": 2})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("written")
    write_corpus(folder, {"train": DOCUMENTS}, MANIFEST)
    return Corpus(folder, "train")


def test_documents_come_back_as_they_were(written: Corpus) -> None:
    assert [written.document(index) for index in range(len(written))] == TEXTS


@given(st.data())
def test_slices_hold_the_lines_that_begin_in_them(written: Corpus, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(TEXTS) - 1))
    size = len(TEXTS[index].encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=4)))
    parts = [written.lines_between(index, start, end) for start, end in zip([0, *cuts], [*cuts, size], strict=True)]
    assert "".join(parts) == TEXTS[index]
    assert all(part.endswith("\n") for part in parts if part)


def test_a_document_knows_its_path_and_the_others_of_its_package(written: Corpus) -> None:
    assert written.paths == ("a/0.py", "a/1.py", "b/2.py")
    assert [written.package_of(index) for index in range(3)] == [range(2), range(2), range(2, 3)]


def test_the_documents_of_a_package_are_written_together(tmp_path: Path) -> None:
    write_corpus(tmp_path, {"train": [DOCUMENTS[0], DOCUMENTS[2], DOCUMENTS[1]]}, MANIFEST)
    assert Corpus(tmp_path, "train").paths == ("a/0.py", "a/1.py", "b/2.py")


def test_the_manifest_comes_back(tmp_path: Path) -> None:
    write_corpus(tmp_path, {"train": DOCUMENTS}, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST


def test_a_corpus_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path, {"train": DOCUMENTS}, MANIFEST)
    (tmp_path / "train.bin").write_bytes((tmp_path / "train.bin").read_bytes()[:-3])
    with pytest.raises(CorpusError, match=r"train\.bin"):
        Corpus(tmp_path, "train")


def test_a_missing_corpus_names_its_folder(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=tmp_path.name):
        Corpus(tmp_path, "held_out")
    with pytest.raises(CorpusError, match=tmp_path.name):
        read_manifest(tmp_path)
