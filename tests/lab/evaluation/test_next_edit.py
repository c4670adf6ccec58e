from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from midfill_lab.evaluation.next_edit import chrf, delta_chrf, evaluate, figures_of, replies_recorded
from midfill_lab.evaluation.scenarios import read_answers, read_scenarios, recorder_of
from protocol.errors import BadInput

SCENARIOS = Path(__file__).with_name("data") / "scenarios"
# cursortab's recorder puts an empty line between the events for Zeta, and changes their order.
OTHER_HISTORY = ("10-go-map-value-to-slice", "zeta-2")


@pytest.mark.parametrize("model", ["zeta-2", "sweep-next-edit-1.5B"])
def test_prompts_are_laid_as_they_were_recorded(model: str) -> None:
    compared = 0
    recorder = recorder_of(model)
    for scenario in read_scenarios(SCENARIOS):
        for recorded in read_answers(SCENARIOS, scenario, model)[:1]:
            cursor = recorded.cursor(scenario)
            assert cursor is not None
            laid = recorder.lay(scenario, recorder.place(scenario, cursor)).text
            if (scenario.name, model) == OTHER_HISTORY:
                assert sorted(filter(None, laid.split("\n"))) == sorted(filter(None, recorded.prompt.split("\n")))
            else:
                assert laid == recorded.prompt
            compared += 1
    assert compared == 4


@pytest.mark.parametrize(
    ("model", "before", "behind"),
    [
        # deltaChrF, shown and quiet cases; one silent case of the gate has no answer: its buffer is unchanged.
        ("zeta-2", (92.5, 2, 2), (92.5, 2, 3)),
        ("sweep-next-edit-1.5B", (55.4, 2, 1), (55.4, 2, 3)),
    ],
)
def test_recorded_answers_are_scored_before_and_behind_the_gate(
    model: str, before: tuple[float, int, int], behind: tuple[float, int, int]
) -> None:
    found = evaluate(read_scenarios(SCENARIOS), replies_recorded(SCENARIOS, model), lambda: None)
    figures = [figures_of(found[stage]) for stage in ("as answered", "through the gate")]
    assert [(round(each.delta_chrf, 1), each.shown, each.quiet) for each in figures] == [before, behind]
    assert [each.silent for each in figures] == [2, 3]


def test_an_answer_is_replayed_at_the_cursor_of_its_prompt_alone() -> None:
    scenario = next(each for each in read_scenarios(SCENARIOS) if each.name.startswith("29"))
    reply = replies_recorded(SCENARIOS, "sweep-next-edit-1.5B")
    assert [reply(scenario, cursor) is not None for cursor in scenario.cursors] == [False, True, False]


def test_the_score_is_of_what_changes() -> None:
    assert delta_chrf("a\nb\nc", "a\nx\nc", "a\nx\nc") == 100.0
    assert delta_chrf("a\nb\nc", "a\nb\nc", "a\nx\nc") == 0.0
    assert delta_chrf("a\nb\nc", "a\nc", "a\nc") == 100.0  # both only delete
    assert chrf("", "") == 100.0
    # Of the bigrams and unigrams of "ab" and "abc": P = 1, R = 2/3 and 1/2; of the trigrams none is in common.
    assert chrf("ab", "abc") == pytest.approx(100 * (10 / 14 + 5 / 9 + 0) / 3)


@pytest.mark.parametrize("text", ["", "x\nrow: 1\n", "x\nrow: 9\ncol: 0\nfile: a\n-- buffer.txt --\n\n-- steps --\n\n"])
def test_a_file_that_is_no_scenario_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.txtar").write_text(text)
    with pytest.raises(BadInput, match=r"bad\.txtar"):
        read_scenarios(tmp_path)


def test_a_recording_that_is_none_is_named(tmp_path: Path) -> None:
    name = "25-python-fix-import-typo"
    shutil.copy(SCENARIOS / f"{name}.txtar", tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "zeta-2.ndjson").write_text('{"kind": "request", "body_b64": "?"}\n')
    with pytest.raises(BadInput, match=r"zeta-2\.ndjson"):
        read_answers(tmp_path, read_scenarios(tmp_path)[0], "zeta-2")


def test_unknown_models_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="mercury"):
        recorder_of("mercury")
    with pytest.raises(BadInput, match="no scenarios"):
        read_scenarios(tmp_path)
