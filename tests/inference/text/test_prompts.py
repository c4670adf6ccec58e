from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from inference.text.fim import FORMATS, FIMFormat
from inference.text.prompts import (
    MAX_CHARS_PER_TOKEN,
    NEW_TOKENS_SHARE,
    SHORT_PREFIX_TOKENS,
    SHORT_SUFFIX_TOKENS,
    STEPS_PER_CONTEXT,
    TokenizedPrompt,
    short_prompt,
    tokenize_prompt,
)
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import MarkerIds, TextTokenizer
from protocol.errors import BadInput
from protocol.messages import CompletionRequest, Prompt, Snippet
from protocol.settings import TINY_MODEL

PRE, SUF, MID, SEP, BEGIN = 1001, 1002, 1003, 1004, 1005
CONTEXT = 128
STEP = CONTEXT // STEPS_PER_CONTEXT
ROOM_FOR_NEW = CONTEXT // NEW_TOKENS_SHARE


class CharacterEncoder:
    """One token per character, its code point."""

    def __init__(
        self,
        begin: int | None = None,
        separator: int | None = SEP,
        middle: int | None = MID,
        format: FIMFormat = FORMATS["qwen-coder"],  # noqa: A002 - the name of the attribute
    ) -> None:
        self.format = format
        self.markers = MarkerIds(PRE, SUF, middle, begin, separator, frozenset())

    def encode(self, fragment: str) -> TokenIds:
        return packed(map(ord, fragment))


def lay_out(prompt: Prompt, encoder: CharacterEncoder | None = None, max_tokens: int = 8) -> TokenizedPrompt:
    return tokenize_prompt(prompt, encoder or CharacterEncoder(), CONTEXT, max_tokens)


def ids(*parts: str | int) -> TokenIds:
    return packed(token_id for part in parts for token_id in ([part] if isinstance(part, int) else map(ord, part)))


PROMPT = Prompt("ab", "cd", "ef")
WITHOUT_MIDDLE = CharacterEncoder(middle=None, format=FORMATS["codestral"])


def test_efim() -> None:
    laid_out = lay_out(PROMPT)
    assert laid_out.token_ids == ids(PRE, "ab", SUF, "cd", MID, "ef")
    counts = (laid_out.prefix_tokens, laid_out.suffix_tokens, laid_out.increment_tokens, laid_out.context_tokens)
    assert counts == (2, 2, 2, 0)


@pytest.mark.parametrize(
    ("prompt", "encoder", "expected"),
    [
        (replace(PROMPT, order="spm"), CharacterEncoder(), ids(SUF, "cd", PRE, "ab", MID, "ef")),
        # families trained with the suffix first, and without a middle marker and with a leading space
        (PROMPT, CharacterEncoder(format=FORMATS["seed-coder"]), ids(SUF, "cd", PRE, "ab", MID, "ef")),
        (PROMPT, CharacterEncoder(middle=None, format=FORMATS["codestral"]), ids(SUF, "cd", PRE, " abef")),
        (replace(PROMPT, prefix=""), CharacterEncoder(middle=None, format=FORMATS["codestral"]), ids(SUF, "cd", PRE, "ef")),
    ],
)
def test_the_suffix_first(prompt: Prompt, encoder: CharacterEncoder, expected: TokenIds) -> None:
    assert lay_out(prompt, encoder).token_ids == expected


def test_context_stands_before_the_prefix() -> None:
    prompt = replace(PROMPT, context=(Snippet("x.py", "one\n"), Snippet("y.py", "two")))
    with_separator = ids(SEP, "x.py\none\n", SEP, "y.py\ntwo\n", PRE, "ab", SUF, "cd", MID, "ef")
    assert lay_out(prompt).token_ids == with_separator
    without = lay_out(prompt, CharacterEncoder(separator=None))
    assert without.token_ids == ids("one\ntwo\n", PRE, "ab", SUF, "cd", MID, "ef")


def test_begin_stands_first() -> None:
    prompt = replace(PROMPT, context=(Snippet("x.py", "one\n"),))
    assert lay_out(prompt, CharacterEncoder(begin=BEGIN)).token_ids[:2] == ids(BEGIN, SEP)


def test_fragments_are_tokenized_on_their_own(real_tokenizer: TextTokenizer) -> None:
    prompt = Prompt("def fo", "\n", "o(x)")
    token_ids = tokenize_prompt(prompt, real_tokenizer, 1024, 8).token_ids
    markers, encode = real_tokenizer.markers, real_tokenizer.encode
    begin = () if markers.begin is None else (markers.begin,)
    expected = (
        *begin, markers.prefix, *encode("def fo"), markers.suffix, *encode("\n"), markers.middle, *encode("o(x)"),
    )  # fmt: skip
    assert token_ids == packed(expected)


def test_beginning_stays_put_while_the_increment_grows() -> None:
    prefix = "".join(chr(32 + number % 90) for number in range(300))
    beginnings = []
    for length in range(40):
        laid_out = lay_out(Prompt(prefix, "s" * 10, "i" * length))
        assert len(laid_out.token_ids) + 8 <= CONTEXT
        beginnings.append(laid_out.token_ids[:4])
    changes = sum(1 for before, after in itertools.pairwise(beginnings) if before != after)
    assert changes <= -(-40 // STEP)


def test_layout_is_the_same_ahead_of_the_request() -> None:
    prompt = Prompt("p" * 300, "s" * 50, "")
    assert lay_out(prompt, max_tokens=0) == lay_out(prompt, max_tokens=ROOM_FOR_NEW)


def test_context_is_dropped_first_and_whole_and_from_its_end() -> None:
    chunks = (Snippet("a", "1" * 20), Snippet("b", "2" * 40))
    laid_out = lay_out(Prompt("p" * 40, "s" * 20, "", context=chunks))
    assert laid_out.token_ids[0] == SEP
    assert laid_out.token_ids.count(ord("1")) == 20
    assert ord("2") not in laid_out.token_ids
    assert (laid_out.prefix_tokens, laid_out.suffix_tokens) == (40, 20)


def test_a_chunk_behind_one_that_does_not_fit_is_dropped_too() -> None:
    chunks = (Snippet("a", "1" * 60), Snippet("b", "2"))
    assert lay_out(Prompt("p" * 40, "s" * 20, "", context=chunks)).context_tokens == 0


def test_the_increment_pushes_context_out_at_steps_alone() -> None:
    chunks = (Snippet("a", "1" * 10), Snippet("b", "2" * 10))
    kept = [lay_out(Prompt("p" * 30, "s" * 20, "i" * length, chunks)).context_tokens for length in range(4 * STEP + 1)]
    changes = [length for length in range(1, len(kept)) if kept[length] != kept[length - 1]]
    assert kept[0] == 28
    assert changes
    assert all(length % STEP == 1 for length in changes)
    assert kept == sorted(kept, reverse=True)


def test_long_suffix_gives_way_before_the_prefix() -> None:
    laid_out = lay_out(Prompt("p" * 40, "s" * 300))
    assert laid_out.prefix_tokens == 40
    assert 2 * STEP <= laid_out.suffix_tokens <= 300
    laid_out = lay_out(Prompt("p" * 300, "s" * 300))
    assert laid_out.suffix_tokens >= STEP
    assert laid_out.prefix_tokens >= STEP


def test_what_is_kept_is_next_to_the_cursor() -> None:
    token_ids = lay_out(Prompt("x" * 300 + "a", "b" + "y" * 300)).token_ids
    suffix_at = token_ids.index(SUF)
    assert token_ids[suffix_at - 1 : suffix_at + 2] == ids("a", SUF, "b")


@pytest.mark.parametrize(("increment", "max_tokens"), [("i" * 120, 8), ("", 126), ("i" * 60, 70)])
def test_what_cannot_fit_is_refused(increment: str, max_tokens: int) -> None:
    with pytest.raises(BadInput, match=f"{len(increment)} tokens, .* and {max_tokens} new tokens do not fit"):
        lay_out(Prompt("p", "s", increment), max_tokens=max_tokens)


def test_text_that_cannot_enter_the_context_is_not_tokenized() -> None:
    limit = CONTEXT * MAX_CHARS_PER_TOKEN
    encoder = CharacterEncoder()
    tokenized: list[str] = []
    encode = encoder.encode
    encoder.encode = lambda fragment: (tokenized.append(fragment), encode(fragment))[1]  # type: ignore[method-assign]
    chunks = tuple(Snippet(name, "c" * (limit - 5)) for name in "abc")
    lay_out(Prompt("p" * 10**7 + "a", "b" + "s" * 10**7, "i", chunks), encoder)
    assert sum(map(len, tokenized)) <= 3 * limit + 10
    assert any(fragment.endswith("pa") for fragment in tokenized)
    assert any(fragment.startswith("bs") for fragment in tokenized)
    with pytest.raises(BadInput, match="increment of 10000000 characters"):
        lay_out(Prompt("p", "s", "i" * 10**7), encoder)
    tokenized.clear()
    lay_out(Prompt("p", "s", "i", (Snippet("path" * limit, "c"),)), encoder)
    assert sum(map(len, tokenized)) <= 10


def test_prefix_that_is_cut_begins_at_the_same_place_while_it_grows() -> None:
    prefix = "".join(chr(32 + number % 90) for number in range(CONTEXT * MAX_CHARS_PER_TOKEN * 2))
    beginnings = [lay_out(Prompt(prefix[:length], "")).token_ids[:4] for length in range(1900, 1940)]
    assert sum(before != after for before, after in itertools.pairwise(beginnings)) <= -(-40 // STEP) + 1


sizes = st.integers(0, 400)


@given(prefix=sizes, suffix=sizes, increment=st.integers(0, 80), context=sizes, max_tokens=st.integers(0, 40))
def test_everything_fits_and_markers_stay(prefix: int, suffix: int, increment: int, context: int, max_tokens: int) -> None:
    chunks = (Snippet("f", "c" * context),) if context else ()
    prompt = Prompt("p" * prefix, "s" * suffix, "i" * increment, chunks)
    laid_out = lay_out(prompt, max_tokens=max_tokens)
    token_ids = laid_out.token_ids
    assert len(token_ids) + max(max_tokens, ROOM_FOR_NEW) <= CONTEXT
    assert [token_ids.count(marker) for marker in (PRE, SUF, MID)] == [1, 1, 1]
    assert token_ids[token_ids.index(MID) + 1 :] == ids("i" * increment)
    room = CONTEXT - max(max_tokens, ROOM_FOR_NEW) - 3 - increment
    kept = laid_out.prefix_tokens + laid_out.suffix_tokens
    assert kept >= min(prefix + suffix, room - 2 * STEP)


def test_a_prompt_that_grows_past_the_limit_stays_a_hit_or_partial() -> None:
    engine = load_dry_engine(EngineOptions(TINY_MODEL, context_tokens=1024))
    step = 1024 // STEPS_PER_CONTEXT
    chunks = tuple(Snippet(f"{name}.py", f"{name} = 1\n" * 20) for name in "abc")
    base = Prompt("x = 1\n" * 60, "y = 2\n" * 20, "", chunks)
    crossings = 0
    before = tokenize_prompt(base, engine.tokenizer, 1024, 16)
    assert before == tokenize_prompt(base, engine.tokenizer, 8192, 16)  # it all fits
    engine.complete(CompletionRequest("s", base, max_tokens=16))
    for count in range(1, 100):
        prompt = replace(base, increment="".join(f"word_{number} + " for number in range(count)))
        now = tokenize_prompt(prompt, engine.tokenizer, 1024, 16)
        recomputed = engine.complete(CompletionRequest("s", prompt, max_tokens=16)).usage.recomputed_tokens
        if now.context_tokens == before.context_tokens:
            assert recomputed <= now.increment_tokens - before.increment_tokens + 3
        else:  # of the chunks that stay nothing is computed again
            crossings += 1
            assert before.increment_tokens <= now.increment_tokens // step * step < now.increment_tokens
            assert recomputed <= len(now.token_ids) - now.context_tokens
        before = now
    assert crossings > 1
    assert before.prefix_tokens + before.suffix_tokens == len(engine.tokenizer.encode(base.prefix + base.suffix))


def test_a_prompt_with_markers_is_taken_as_it_is(real_tokenizer: TextTokenizer) -> None:
    marker = real_tokenizer.format.prefix
    parts = ("a = 1\n", marker, f"b = '{marker}'\n", marker, "")
    laid = tokenize_prompt(Prompt("", "", marked=parts), real_tokenizer, 512, 8)
    marker_id = real_tokenizer.markers.prefix
    first, second = real_tokenizer.encode(parts[0]), real_tokenizer.encode(parts[2])
    assert laid.token_ids == first + packed([marker_id]) + second + packed([marker_id])
    assert marker_id not in second  # in a text its name is text


@pytest.mark.parametrize(
    ("parts", "named"), [(("", "<|mark|>", ""), r"<\|mark\|>"), (("a b " * 200,), "does not fit"), (("a" * 9_999,), "9999")]
)
def test_a_prompt_with_markers_that_cannot_be_laid(real_tokenizer: TextTokenizer, parts: tuple[str, ...], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        tokenize_prompt(Prompt("", "", marked=parts), real_tokenizer, 128, 8)


@given(st.text("ab \n", max_size=600), st.text("ab \n", max_size=600))
def test_a_short_prompt_is_the_nearest_lines_of_so_many_tokens(prefix: str, suffix: str) -> None:
    whole = Prompt(prefix, suffix, "x = ", (Snippet("a.py", "b"),))
    short = short_prompt(whole, len)
    assert prefix.endswith(short.prefix)
    assert suffix.startswith(short.suffix)
    assert len(short.prefix) <= SHORT_PREFIX_TOKENS
    assert len(short.suffix) <= SHORT_SUFFIX_TOKENS
    before, behind = prefix.removesuffix(short.prefix), suffix.removeprefix(short.suffix)
    assert before[-1:] in ("", "\n", " ")
    assert not behind or short.suffix[-1:] in ("", "\n", " ")
    if before.endswith("\n"):  # whole lines, as many as fit
        assert len(before.split("\n")[-2] + "\n" + short.prefix) > SHORT_PREFIX_TOKENS
    if behind and short.suffix.endswith("\n"):
        assert len(short.suffix + behind.partition("\n")[0] + "\n") >= SHORT_SUFFIX_TOKENS
    assert (short.increment, short.context) == ("x = ", ())
    assert short_prompt(short, len) == short


def test_a_short_prompt_has_words_of_a_longer_line() -> None:
    prose = "word " * 200
    short = short_prompt(Prompt(f"x = 1\n{prose}\n", f"{prose}\ny = 2\n"), len)
    assert short.prefix == "word " * 29 + "\n"
    assert short.suffix == "word " * 20
