"""Places in source files, and what the author wrote there."""

from __future__ import annotations

from pathlib import Path

import pytest

from midfill_lab.evaluation.fidelity.places import KINDS, Place, places_in
from protocol.errors import BadInput

SOURCES = Path(__file__).parents[3] / "data" / "fidelity" / "sources"


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
    assert (
        max(sum(other.language_id == place.language_id and other.kind == place.kind for other in few) for place in few)
        == 2
    )


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
