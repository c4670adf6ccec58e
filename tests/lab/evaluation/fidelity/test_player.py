"""What the model writes is what the user gets: an author's own text, in many languages, through every filter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lsp_server.filters import order
from midfill_lab.evaluation.fidelity.cases import read_cases
from midfill_lab.evaluation.fidelity.places import places_in
from midfill_lab.evaluation.fidelity.player import play
from protocol.settings import Settings

DATA = Path(__file__).parents[3] / "data" / "fidelity"


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
