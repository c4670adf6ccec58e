"""Snippets of other files in training examples."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import accumulate, takewhile
from operator import eq
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.text.prompts import tokenize_prompt
from inference.text.tokenization import read_tokenizer
from midfill_lab.training.corpus import Corpus, Document, Manifest, write_corpus
from midfill_lab.training.examples import (
    FimExample,
    SnippetPicker,
    Tokens,
    cut_example,
    encode_fragments,
    encode_snippet,
    lay_out,
    lines_with_later_names,
    random_fragments,
    with_context,
)
from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.vocabulary import Vocabulary, load_vocabulary
from protocol.messages import Prompt, Snippet
from tests.inference.conftest import VOCABULARIES
from tests.lab.packages import write_module

TEXT = """\
import os


def count(folder):
    # total is explained here
    total = 0
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        total += os.path.isfile(path)
    return total
"""


def found(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))
    return [lines[number].strip() for number in lines_with_later_names(text, starts)]


def test_lines_that_introduce_what_is_used_below() -> None:
    assert found(TEXT) == [
        "import os",
        "def count(folder):",
        "total = 0",
        "for name in os.listdir(folder):",
        "path = os.path.join(folder, name)",
    ]


def test_keywords_comments_and_a_line_s_own_repetition_do_not_count() -> None:
    assert found("# word\nword\nif x:\n    pass\nif y:\n    yy = yy + 1\n") == []


SOURCE = write_module(Random(5), 12)
LINES = st.lists(st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1)
TEXTS = st.one_of(LINES.map(lambda lines: "\n".join(lines) + "\n"), st.just(SOURCE))
SEEDS = st.integers(0, 2**32).map(Random)
NO_OPEN_END = ExampleOptions(open_end_rate=0)


@given(TEXTS, SEEDS)
def test_the_parts_of_an_example_make_up_the_text(text: str, rng: Random) -> None:
    assert cut_example(text, NO_OPEN_END, rng).text == text


@given(TEXTS, SEEDS)
def test_without_a_suffix_the_parts_make_up_its_head(text: str, rng: Random) -> None:
    example = cut_example(text, ExampleOptions(open_end_rate=1), rng)
    assert example.suffix == ()
    assert text.startswith(example.text)


@given(TEXTS, SEEDS)
def test_no_fragment_is_empty_and_middles_are_cut_further_only_if_allowed(text: str, rng: Random) -> None:
    example = cut_example(text, ExampleOptions(fragment_rate=1, context_fragment_rate=1, further_cuts_rate=0), rng)
    assert all((*example.prefix, *example.middle, *example.suffix))
    assert len(example.middle) <= 2


def test_middles_are_cut_into_fragments_of_the_length_of_others() -> None:
    rng = Random(0)
    options = ExampleOptions(fragment_rate=1, further_cuts_rate=1, shortest_fragment=4, longest_fragment=16)
    fragments = [example.middle for example in (cut_example(SOURCE, options, rng) for _ in range(200))]
    assert max(len(fragment) for several in fragments for fragment in several) <= 16
    assert sum(len(several) > 4 for several in fragments) > 50


@given(SEEDS)
def test_without_fragments_every_part_is_one_piece(rng: Random) -> None:
    example = cut_example(SOURCE, ExampleOptions(fragment_rate=0, context_fragment_rate=0), rng)
    assert all(len(part) <= 1 for part in (example.prefix, example.middle, example.suffix))


@given(TEXTS, SEEDS)
def test_left_to_right_fragments_make_up_the_text(text: str, rng: Random) -> None:
    assert "".join(random_fragments(text, ExampleOptions(), rng)) == text


@given(SEEDS)
def test_fragments_are_as_long_as_they_may_be(rng: Random) -> None:
    options = ExampleOptions(shortest_fragment=3, longest_fragment=20)
    lengths = {len(fragment) for fragment in random_fragments(SOURCE, options, rng)[:-1]}
    assert min(lengths) >= 3
    assert max(lengths) <= 20


def test_a_middle_that_introduces_a_later_name_is_a_whole_line() -> None:
    options = ExampleOptions(later_name_rate=1, open_end_rate=0, fragment_rate=0, efim_rate=0, spm_rate=0)
    for seed in range(100):
        example = cut_example(SOURCE, options, Random(seed))
        middle, suffix = "".join(example.middle), "".join(example.suffix)
        names = set(re.findall(r"[^\W\d]\w+", middle)) - set(re.findall(r"[^\W\d]\w+", "".join(example.prefix)))
        assert suffix.startswith("\n")
        assert "\n" not in middle
        assert names & set(re.findall(r"[^\W\d]\w+", suffix))


@given(SEEDS)
def test_an_example_with_a_given_cursor_completes_its_line(rng: Random) -> None:
    cursor = rng.randrange(len(SOURCE))
    options = ExampleOptions(open_end_rate=0, efim_rate=0, fragment_rate=0, context_fragment_rate=0)
    example = cut_example(SOURCE, options, rng, cursor)
    assert "".join(example.prefix) == SOURCE[:cursor]
    assert "".join(example.middle) == SOURCE[cursor:].partition("\n")[0]
    assert example.text == SOURCE


def test_cuts_fall_inside_words_and_anchors_at_line_starts() -> None:
    rng = Random(0)
    examples = [cut_example(SOURCE, ExampleOptions(fragment_rate=1, efim_rate=1, spm_rate=0), rng) for _ in range(400)]
    pairs = [example.middle for example in examples if len(example.middle) > 1]
    inside_words = sum(first[-1].isalpha() and second[0].isalpha() for first, second, *_ in pairs)
    at_line_starts = sum("".join(example.prefix)[-1:] in ("\n", "") for example in examples)
    assert inside_words > len(pairs) / 4
    assert at_line_starts > 0.85 * len(examples)
    assert sum("".join(example.suffix).startswith("\n") for example in examples) > len(examples) / 2


@pytest.mark.parametrize(("spm_rate", "order"), [(0.0, "psm"), (1.0, "spm")])
def test_without_efim_the_prefix_ends_at_the_cursor(spm_rate: float, order: str) -> None:
    rng = Random(0)
    options = ExampleOptions(efim_rate=0, spm_rate=spm_rate, context_fragment_rate=0, further_cuts_rate=0)
    examples = [cut_example(SOURCE, options, rng) for _ in range(400)]
    assert {example.order for example in examples} == {order}
    assert all(len(example.middle) <= 1 for example in examples)  # nothing was typed since an anchor
    assert sum("".join(example.prefix)[-1:].isalpha() for example in examples) > len(examples) / 5


@given(SEEDS)
def test_an_example_is_laid_out_in_order_and_ends(vocabulary: Vocabulary, rng: Random) -> None:
    example = cut_example(SOURCE, ExampleOptions(spm_rate=0), rng)
    ids, markers = encoded(example, vocabulary), vocabulary.markers
    suffix_at, middle_at = ids.index(markers.suffix), ids.index(markers.middle)
    assert ids[0] == markers.prefix
    assert vocabulary.decode(ids[1:suffix_at]) == "".join(example.prefix)
    assert vocabulary.decode(ids[suffix_at + 1 : middle_at]) == "".join(example.suffix)
    assert vocabulary.decode(ids[middle_at + 1 : -1]) == "".join(example.middle)
    assert ids[-1] == markers.end_of_text


def encoded(example: FimExample, vocabulary: Vocabulary) -> list[int]:
    prompt, middle = lay_out(example, vocabulary)
    return prompt.ids + middle.ids


def test_increments_end_wherever_an_editor_puts_the_cursor() -> None:
    rng = Random(0)
    options = ExampleOptions(efim_rate=1, spm_rate=0, fragment_rate=1, context_fragment_rate=0, further_cuts_rate=0)
    examples = [cut_example(SOURCE, options, rng) for _ in range(600)]
    increments = [example.middle[0] for example in examples if len(example.middle) == 2]
    tails = [increment.rpartition("\n") for increment in increments if "\n" in increment]
    newline_alone = sum(not last for _, _, last in tails)
    indented = sum(bool(last) and not last.strip() for _, _, last in tails)
    assert newline_alone > 0.05 * len(tails)
    assert indented > 0.05 * len(tails)
    assert {0, 1, 3, 8} <= {increment.count("\n") for increment in increments}
    assert any(not example.middle[1:] for example in examples)  # nothing was typed since the anchor


def with_snippets(prompt: Tokens, snippets: Iterable[Snippet], vocabulary: Vocabulary) -> Tokens:
    return with_context(prompt, [token for each in snippets for token in encode_snippet(each, vocabulary)], vocabulary)


def test_snippets_stand_in_front(vocabulary: Vocabulary) -> None:
    snippets = (Snippet("a.py", "x = 1\n"), Snippet("b.py", "y = 2\n"))
    prompt, _ = lay_out(FimExample(("p\n",), ("m",), ("s",)), vocabulary)
    shown = vocabulary.decode(with_snippets(prompt, snippets, vocabulary).ids)
    assert shown == "x = 1\ny = 2\n<|fim_prefix|>p\n<|fim_suffix|>s<|fim_middle|>"


def test_spm_puts_the_suffix_first(vocabulary: Vocabulary) -> None:
    shown = vocabulary.decode(encoded(FimExample(("p\n",), ("m",), ("s",), "spm"), vocabulary))
    assert shown == "<|fim_suffix|>s<|fim_prefix|>p\n<|fim_middle|>m<|endoftext|>"


@given(TEXTS, SEEDS)
def test_the_last_fragment_is_learned_and_cuts_between_tokens_lose_nothing(
    vocabulary: Vocabulary, text: str, rng: Random
) -> None:
    fragments = random_fragments(text, ExampleOptions(shortest_fragment=1, longest_fragment=16), rng)
    ids, learned = encode_fragments(fragments, vocabulary)
    assert ids == [token for fragment in fragments for token in vocabulary.encode(fragment)]
    last = len(vocabulary.encode(fragments[-1])) if fragments else 0
    assert all(learned[len(learned) - last :])
    if ids == vocabulary.encode(text):
        assert all(learned)


@pytest.mark.parametrize("family", ["own", "qwen2.5-coder", "starcoder2", "deepseek-coder"])
@given(st.text(alphabet=" \n\tab_AB.:('\"9é中", max_size=200), SEEDS)
def test_only_the_words_at_a_cut_have_to_be_tokenized_again(vocabulary: Vocabulary, family: str, text: str, rng: Random) -> None:
    used = vocabulary if family == "own" else _family(family)
    fragments = random_fragments(text, ExampleOptions(shortest_fragment=1, longest_fragment=32), rng)
    expected: list[bool] = []
    for number, fragment in enumerate(fragments):
        own, uncut = used.encode(fragment), used.encode("".join(fragments[number:]))
        same = sum(takewhile(bool, map(eq, own, uncut)))
        expected += [True] * same + [False] * (len(own) - same)
    assert encode_fragments(fragments, used).learned == expected


@cache
def _family(name: str) -> Vocabulary:
    path = VOCABULARIES / name / "tokenizer.json"
    if not path.is_file():
        pytest.skip(f"the vocabulary {path} is not here")
    return load_vocabulary(path)


@pytest.mark.parametrize(
    ("family", "prompt"),
    [
        ("qwen2.5-coder", "<|fim_prefix|>p\n<|fim_suffix|>s<|fim_middle|>"),
        ("starcoder2", "<fim_prefix>p\n<fim_suffix>s<fim_middle>"),
        ("deepseek-coder", "<｜begin▁of▁sentence｜><｜fim▁begin｜>p\n<｜fim▁hole｜>s<｜fim▁end｜>"),
    ],
)
def test_examples_are_laid_out_as_their_family_has_it(family: str, prompt: str) -> None:
    path = VOCABULARIES / family / "tokenizer.json"
    if not path.is_file():
        pytest.skip(f"the vocabulary {path} is not here")
    vocabulary = load_vocabulary(path)
    laid_out, middle = lay_out(FimExample(("p\n",), ("m",), ("s",)), vocabulary)
    assert vocabulary.decode(laid_out.ids) == prompt
    assert vocabulary.decode(middle.ids) == f"m{vocabulary.format.end[0]}"
    snippets = (Snippet("a.py", "x = 1\n"), Snippet("b/c.py", "y = 2\n"))
    tokenized = tokenize_prompt(Prompt("p\n", "s", context=snippets), read_tokenizer(path), 512, 16)
    assert with_snippets(laid_out, snippets, vocabulary).ids == list(tokenized.token_ids)  # what the engine asks with


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
    picked = [snippet for seed in range(20) for snippet in SnippetPicker(corpus).pick(0, "Kettle\n", 1000, Random(seed))]
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
