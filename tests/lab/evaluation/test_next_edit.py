from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lsp_server.next_edit.zeta import ZETA_2
from midfill.commands import app
from midfill_lab.evaluation.next_edit import chrf, delta_chrf, evaluate, figures_of, replies_of, replies_recorded
from midfill_lab.evaluation.scenarios import read_answers, read_scenarios, recorder_of
from midfill_lab.evaluation.sessions import scenarios_in
from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest, Usage

SCENARIOS = Path(__file__).with_name("data") / "scenarios"
NOTHING = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)
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


def test_a_model_is_asked_with_our_prompts_and_silence_is_kept_without_it() -> None:
    asked: list[CompletionRequest] = []
    scenarios = [each for each in read_scenarios(SCENARIOS) if each.name[:2] in ("01", "25", "35")]

    def answer(request: CompletionRequest) -> Completion:
        asked.append(request)
        text = request.copies.replace("imfrom", "from")
        return Completion(text, "stop", NOTHING)

    found = evaluate(scenarios, replies_of(answer, ZETA_2), lambda: None)
    figures = figures_of(found["through the gate"])
    assert (figures.score, figures.shown, figures.quiet) == (1.0, 1, len(asked))  # 01 is not asked
    assert asked[0].prompt.marked[1::2] == ("<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>")
    assert "-from werkzeug.local import LocalProxy\n+imfrom " in "".join(asked[0].prompt.marked)
    assert asked[0].stop_texts == (">>>>>>> UPDATED",)


def test_a_document_with_a_marker_is_silent() -> None:
    scenario = replace(read_scenarios(SCENARIOS)[1], text="a\n=======\nb", cursors=((0, 0),))
    found = evaluate([scenario], replies_of(lambda _: pytest.fail("asked"), ZETA_2), lambda: None)
    (outcome,) = found["through the gate"]
    assert "=======" in (outcome.reason or "")


def test_the_command_scores_recorded_answers(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    arguments = ["eval", "--next-edit", str(SCENARIOS), "--answers", "zeta-2", "--json", str(file)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "2 of 2" in result.output
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["reason"] for row in rows if row["scenario"].startswith("01")] == ["nothing was edited"]
    assert sum(row["shown"] for row in rows) == 4


def test_a_model_without_the_markers_is_refused(tiny_model: str, runtime: Path) -> None:
    arguments = ["eval", "--next-edit", str(SCENARIOS), "--model", tiny_model]
    for more, said in (([], "no next-edit model"), (["--next-edit-format", "sweep-b"], r"<\|file_sep\|>")):
        with pytest.raises(BadInput, match=said):
            CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)


def session(folder: Path, *times: float) -> Path:
    """A session that types a letter at each time, the é of two bytes among them."""
    file = folder / "session.json"
    typed = [
        {"time": f"2026-01-01T00:00:{time:06.3f}Z", "patches": [[place, 0, letter]]}
        for place, (time, letter) in enumerate(zip(times, "né\nabcdefgh", strict=False))
    ]
    file.write_text(json.dumps({"startContent": "", "endContent": None, "txns": typed}))
    return file


def test_a_session_asks_at_pauses_for_what_the_user_does_next(tmp_path: Path) -> None:
    scenarios = scenarios_in(session(tmp_path, 0, 0.5, 1.6, 1.7, 3, 3.1, 9), None, seed=0)
    assert [(each.text, each.expected, each.cursors) for each in scenarios] == [
        ("né", "né\na", (((0, 3),))),
        ("né\na", "né\nabc", (((1, 1),))),
    ]
    assert [event.new for event in scenarios[1].events] == [("né",), ("né\n", "a")]
    next_states = {scenario.text: scenario.expected or "" for scenario in scenarios}

    def ideal(request: CompletionRequest) -> Completion:
        text = next_states[request.copies.removesuffix(">>>>>>> UPDATED")[:-1]]
        return Completion(text, "stop", NOTHING)

    figures = figures_of(evaluate(scenarios, replies_of(ideal, ZETA_2), lambda: None)["as answered"])
    assert (figures.delta_chrf, figures.shown, figures.silent) == (100.0, 2, 0)


def test_where_times_are_whole_seconds_one_is_no_pause(tmp_path: Path) -> None:
    assert [each.text for each in scenarios_in(session(tmp_path, 0, 1, 3, 4, 6), 9, seed=0)] == ["né"]


def test_a_session_without_times_has_no_pauses(tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    file.write_text('{"startContent": "", "txns": [{"patches": [[0, 0, "a"]]}]}')
    with pytest.raises(BadInput, match=r"session\.json"):
        scenarios_in(file, None, 0)


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
