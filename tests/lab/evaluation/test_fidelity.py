"""What the model writes is what the user gets: an author's own text, in many languages, through every filter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lsp_server.filters import order
from midfill_lab.evaluation.fidelity import KINDS, Place, Verdict, count, places_in, play, read_cases, row_object, table, verdict
from protocol.errors import BadInput
from protocol.settings import Settings

SOURCES = Path(__file__).parents[2] / "data" / "fidelity" / "sources"


@pytest.fixture(scope="module")
def places() -> list[Place]:
    return places_in([SOURCES], limit=20, seed=0)


def test_every_kind_is_found_in_many_languages(places: list[Place]) -> None:
    for kind in ("start", "middle", "closed", "indent"):
        assert len({place.language_id for place in places if place.kind == kind}) >= 25
    assert len({place.language_id for place in places if place.kind == "block"}) >= 15
    assert {place.kind for place in places} == set(KINDS)


def test_the_author_s_text_restores_the_file(places: list[Place]) -> None:
    for place in places:
        written = place.head + place.model + place.tail.removeprefix(_closer(place))
        assert written == place.expected
        assert place.model.strip()


def test_behind_an_opener_its_closer_stands(places: list[Place]) -> None:
    closed = [place for place in places if place.kind == "closed"]
    assert {(place.head[-1], _closer(place)) for place in closed} >= {("(", ")"), ("[", "]"), ('"', '"'), ("'", "'")}
    assert all(_closer(place) in place.model for place in closed)


def _closer(place: Place) -> str:
    return place.tail[:1] if place.kind == "closed" else ""


def test_a_block_ends_with_its_closing_line() -> None:
    blocks = {place.model for seed in range(40) for place in places_in([SOURCES], 40, seed) if place.kind == "block"}
    assert "\n    int width;\n    int height;\n};" in blocks
    assert "\n  def initialize(items = [])\n    @items = items\n  end" not in blocks  # a part of its class's block
    assert "\n    @items = items\n  end" in blocks
    assert any(block.startswith("\n\t$(CC)") for block in blocks)


def test_the_same_seed_draws_the_same_places(places: list[Place]) -> None:
    assert places_in([SOURCES], limit=20, seed=0) == places
    assert places_in([SOURCES], limit=20, seed=1) != places


def test_no_more_places_than_asked_for() -> None:
    few = places_in([SOURCES], limit=2, seed=0)
    assert max(sum(other.language_id == place.language_id and other.kind == place.kind for other in few) for place in few) == 2


def test_files_that_nobody_writes_are_left_out(tmp_path: Path) -> None:
    text = "a = [1]\n" * 20
    for name in ("jquery.min.js", "package-lock.json", "node_modules/a.js", ".git/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "wide.py").write_text("a = [1]\n" * 5 + "b" * 3000)
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe" * 100)
    with pytest.raises(BadInput, match="no source files"):
        places_in([tmp_path], 5, 0)
    with pytest.raises(BadInput, match="nowhere is neither"):
        places_in([tmp_path / "nowhere"], 5, 0)


CASE = 'name: a call\nlanguage: c\nmodel: "x)"\nexpected: "f(x)\\n"\n---\nf(║)\n'


def test_cases_are_read_with_their_cursor(tmp_path: Path) -> None:
    file = tmp_path / "calls.txt"
    file.write_text(f"# Why.\n{CASE}%%%\n{CASE}", encoding="utf-8")
    first, second = read_cases(file)
    assert (first.name, second.name) == ("calls.txt, case 1 (a call)", "calls.txt, case 2 (a call)")
    assert (first.head, first.tail, first.model, first.expected) == ("f(", ")\n", "x)", "f(x)\n")
    assert (first.language_id, first.kind) == ("c", "case")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CASE.replace("model", "modle"), "case 1: wanted are the lines name, language, model, expected"),
        (CASE.replace("---\n", ""), "wanted are"),
        (CASE.replace("║", ""), "has 0 cursors"),
        (CASE.replace("║", "║║"), "has 2 cursors"),
        (CASE.replace('"x)"', "x)"), "JSON strings"),
        (CASE + "%%%\nname: b\n", "case 2: wanted are"),
    ],
)
def test_a_malformed_case_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "calls.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        read_cases(file)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xff")
    with pytest.raises(BadInput, match="cannot be read"):
        read_cases(tmp_path / "bytes")


PLACE = Place("a:1", "c", "closed", "x = f(", ")\ny();\n", "a, b) + 1;", "x = f(a, b) + 1;\ny();\n")


@pytest.mark.parametrize(
    ("accepted", "said"),
    [
        ("x = f(a, b) + 1;\ny();\n", "as written"),
        (None, "nothing"),
        ("x = f(a, b))\ny();\n", "cut"),
        ("x = f(a, b) + 1;)\ny();\n", "doubled closer"),
        ("x = f(a)\ny();\n", "cut"),
        ("x = f(a, b) +  1;\ny();\n", "white space"),
        ("x = f(c)\ny();\nz();\nz();\n", "other"),
    ],
)
def test_verdict(accepted: str | None, said: Verdict) -> None:
    assert verdict(PLACE, accepted) == said


def test_a_closer_that_is_there_needs_no_suggestion() -> None:
    place = Place("a:1", "c", "closed", "f(", ")", ")", "f()")
    assert verdict(place, None) == "as written"


def test_counts_by_language_and_kind() -> None:
    other = Place("b:1", "go", "start", "", "", "x", "x")
    counts = count([(PLACE, "cut"), (PLACE, "as written"), (other, "as written")])
    assert counts["c", "closed"] == {"cut": 1, "as written": 1}
    shown = table(counts)
    assert shown.row_count == 4  # two places, and two sums
    assert row_object(other, "x", "as written") == {
        "place": "b:1", "language": "go", "kind": "start", "verdict": "as written",
    }  # fmt: skip
    assert row_object(PLACE, "x", "other")["accepted"] == "x"


DATA = Path(__file__).parents[2] / "data" / "fidelity"


@pytest.mark.parametrize("seed", range(3))
def test_the_author_s_text_is_shown_as_written(seed: int) -> None:
    places = places_in([DATA / "sources"], 12, seed)
    wrong = [(place, accepted) for place, accepted, said in play(places, Settings()) if said != "as written"]
    assert len(places) > 500
    assert [(place.name, accepted) for place, accepted in wrong if place.kind in ("start", "middle", "closed")] == []
    # Of several lines a few may end early: where the document goes on with a line that the text has, too.
    assert len(wrong) < 0.02 * sum(place.kind in ("block", "indent") for place in places)


@pytest.mark.parametrize("file", sorted((DATA / "cases").iterdir()), ids=lambda file: file.stem)
def test_cases(file: Path) -> None:
    played = list(play(read_cases(file), Settings()))
    assert {place.name: accepted for place, accepted, said in played if said != "as written"} == {}


def test_a_filter_that_harms_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(insertion: order.Insertion, _: order.CursorContext) -> order.Insertion:
        return insertion.with_text(insertion.text.rstrip(")]};"))

    monkeypatch.setattr(order, "FIT", (replace(order.FIT[0], apply=harm), *order.FIT[1:]))
    played = list(play(places_in([DATA / "sources"], 5, 0), Settings()))
    assert sum(said != "as written" for *_, said in played) > 20
