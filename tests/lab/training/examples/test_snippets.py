"""Snippets of other files in training examples."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from midfill_lab.training.corpus.corpus import Corpus, Document, Manifest, write_corpus
from midfill_lab.training.examples.snippets import SnippetPicker

PACKAGE = [
    Document("import b\nwater = Kettle(3)\n", "a", "a.py"),
    Document("# tea\n\nclass Kettle:\n    def __init__(self, litres):\n        pass\n", "a", "b.py"),
    Document("export const Kettle = 2;\n", "c", "c.ts"),
]


def corpus_of(folder: Path, *documents: Document) -> Corpus:
    write_corpus(folder, {"train": documents}, Manifest((), {}))
    return Corpus(folder, "train")


def test_snippets_are_of_other_files_of_the_package(corpus: Corpus) -> None:
    rng, picker = Random(0), SnippetPicker(corpus)
    for document in range(len(corpus)):
        package = corpus.package_of(document)
        snippets = picker.pick(document, corpus.document(document), 4000, rng)
        assert sum(len(snippet.path) + len(snippet.text) for snippet in snippets) <= 4000
        for snippet in snippets:
            (source,) = (index for index in package if corpus.paths[index] == snippet.path)
            assert source != document
            assert snippet.text in corpus.document(source)
            assert snippet.text.endswith("\n")


def test_a_file_alone_in_its_package_has_no_snippets(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, *PACKAGE[1:])
    for seed in range(20):
        assert SnippetPicker(corpus).pick(0, "Kettle", 1000, Random(seed)) == ()


def test_the_definition_of_a_name_in_the_text_comes_from_another_file_of_the_package(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, *PACKAGE)
    picker = SnippetPicker(corpus)
    picked = {snippet for seed in range(50) for snippet in picker.pick(0, corpus.document(0), 1000, Random(seed))}
    assert {snippet.path for snippet in picked} == {"b.py"}
    assert any(snippet.text.startswith("class Kettle:\n") for snippet in picked)
    assert any(snippet.text.startswith("# tea\n") for snippet in picked)


@pytest.mark.parametrize(
    "line",
    [
        "class Kettle:",
        "    async def Kettle(self):",
        "export default function Kettle() {",
        "export const Kettle = 2;",
        "pub(crate) struct Kettle {",
        "export declare interface Kettle {",
    ],
)
def test_definitions_of_several_languages_are_found(tmp_path: Path, line: str) -> None:
    filler = "".join(f"filler {number}\n" for number in range(2000))
    corpus = corpus_of(tmp_path, Document("Kettle\n", "a", "a.py"), Document(f"{filler}{line}\n{filler}", "a", "b.py"))
    picked = [
        snippet for seed in range(20) for snippet in SnippetPicker(corpus).pick(0, "Kettle\n", 1000, Random(seed))
    ]
    assert any(snippet.text.startswith(line) for snippet in picked)


def test_a_use_is_a_type_or_a_call_in_code_with_something_behind_it(tmp_path: Path) -> None:
    definitions = "class Kettle:\n    def boil(self, litres):\n        pass\n"
    text = (
        "from b import Kettle, boil(1)\n"
        "# Kettle(comment)\n"
        'name = "Kettle of tea"\n'
        "boil = something\n"
        "def boil(self, again):\n"
        "last = Kettle\n"
        "water = Kettle(litres=3)\n"
        "water.boil(litres)\n"
    )
    corpus = corpus_of(tmp_path, Document("unrelated\n", "a", "a.py"), Document(definitions, "a", "b.py"))
    picker = SnippetPicker(corpus)
    uses = {use for seed in range(50) if (use := picker.find_use(0, text, Random(seed)))}
    lines = {text[len(text) - use.from_end :].partition("\n")[0] for use in uses}
    assert lines == {"Kettle(litres=3)", "boil(litres)"}
    first = len("unrelated\n".splitlines())  # the lines are those of the corpus
    assert {use.definitions for use in uses} == {((1, first),), ((1, first + 1),)}


def test_a_name_that_the_file_defines_itself_is_no_use_of_another_file(tmp_path: Path) -> None:
    own, other = "class Kettle:\n    pass\n", "class Kettle:\n    size = 1\n"
    corpus = corpus_of(tmp_path, Document(own, "a", "a.py"), Document(other, "a", "b.py"))
    assert SnippetPicker(corpus).find_use(0, "water = Kettle(litres=3)\n", Random(0)) is None


def test_the_definition_of_a_use_is_among_the_snippets(tmp_path: Path) -> None:
    using = Document("water = Kettle(litres=3)\n", "a", "a.py")
    corpus = corpus_of(tmp_path, using, PACKAGE[1], Document("litres = 4\ntea = 1\n", "a", "d.py"))
    picker, text = SnippetPicker(corpus), corpus.document(0)
    use = picker.find_use(0, text, Random(0))
    assert use is not None
    files = set()
    for seed in range(50):
        snippets = picker.with_definition(0, text, use, 300, Random(seed))
        assert sum(len(snippet.path) + len(snippet.text) for snippet in snippets) <= 300
        assert any(snippet.text.startswith("class Kettle:\n") for snippet in snippets)
        assert all(snippet.text.strip() for snippet in snippets)
        files |= {snippet.path for snippet in snippets}
    assert files == {"b.py", "d.py"}
