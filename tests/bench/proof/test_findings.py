"""What sections conclude from rows: each pass mark holds and fails where it should."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from proof import attention, candidates, correctness, losing, machine, memory, serving, speed
from proof.card import Card
from proof.runner import Check, Finding, Row
from proof.sizes import FULL


def failed(findings: Iterable[Finding]) -> list[str]:
    return [found.what for found in findings if isinstance(found, Check) and not found.passed]


def compared(**changes: object) -> Row:
    row = {"geometry": "9/3x64", "dtype": "float32", "way": "graph", "tokens": 5, "resident": 31, "split": False}
    row |= {"place": [1, 9]}
    return row | {"error": 1e-7, "kv_error": 1e-7} | changes


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"error": 2e-5}, 1),
        ({"kv_error": 2e-5}, 1),
        ({"dtype": "bfloat16", "error": 5e-3, "kv_error": 1e-2}, 0),
        ({"dtype": "bfloat16", "error": 2e-2}, 1),
        ({"error": float("inf")}, 1),
        ({"way": "split", "split": True}, 0),
        ({"way": "split"}, 1),
    ],
)
def test_errors_beyond_the_dtypes_fail(changes: Row, count: int) -> None:
    assert len(failed(correctness._conclude([compared(), compared(**changes)]))) == count


def test_a_distance_with_nan_is_infinite() -> None:
    expected = torch.ones(3, dtype=torch.float64)
    assert correctness.distance(expected, expected) == 0
    assert correctness.distance(torch.tensor([1.0, float("nan"), 1.0]).double(), expected) == float("inf")


def test_torch_must_not_pick_cudnn_and_every_kernel_must_be_right() -> None:
    row: Row = {"call": "token", "tokens": 1, "visible": 9}
    times = {"first_ms": 1.0, "second_ms": 1.0, "steady_us": 9.0}
    ran = {**row, "ran": "flash", "cudnn_allowed": False}
    right = {**row, "backend": "flash", "error": 1e-3, **times}
    unused = {**row, "backend": "cudnn", "error": 0.4, **times}
    assert not failed(attention._conclude([ran, right, unused, {**row, "backend": "math", "refused": "x"}]))
    wrong = {**row, "backend": "efficient", "error": 0.4, **times}
    names = failed(attention._conclude([{**ran, "cudnn_allowed": True}, right, wrong]))
    assert names == ["token: torch does not pick cuDNN", "token: efficient is right"]
    assert failed(attention._conclude([{**ran, "ran": "cudnn"}, right])) == ["token: torch does not pick cuDNN"]


def decoded(**changes: object) -> Row:
    row = {"model": "1.5B", "way": "graph", "visible": 512, "new": 1, "bytes": 3e9, "floor_ms": 1.0}
    return row | {"ms": 2.5, "share": 0.4, "replayed": True} | changes


def test_every_timed_shape_must_be_replayed() -> None:
    rows = [decoded(), decoded(way="eager", replayed=None), decoded(visible=4096)]
    assert not failed(speed._about_decode(rows))
    assert failed(speed._about_decode([*rows, decoded(new=4, replayed=False)])) == ["1.5B, 4 behind 512: a graph is replayed"]


def test_graphs_must_stay_within_the_plan() -> None:
    row: Row = {"workspace": 1, "bytes": 100, "made_bytes": 100 + 2**20, "recordings": 24, "seconds": 1.0}
    row |= {"recorded_bytes": 2**20, "planned_bytes": 24 * 2**20}
    assert not failed(speed._about_recording([row]))
    more = {"made_bytes": 200 * 2**20}
    assert len(failed(speed._about_recording([row | more]))) == 1
    assert not failed(speed._about_recording([row | more | {"workspace": 0}]))  # with the pool
    assert failed(speed._about_recording([row | {"made_bytes": 99}])) == ["what a workspace takes is seen"]


def test_the_default_must_be_the_faster_way_where_times_are_real() -> None:
    row: Row = {"sequences": 4, "ms": {"together": 6.0, "in turn": 9.0, "chosen": 9.1}, "replayed": True}
    assert len(failed(speed._about_sequences([row], is_timed=True))) == 1
    assert not failed(speed._about_sequences([row], is_timed=False))
    row["ms"]["chosen"] = 6.3
    assert not failed(speed._about_sequences([row], is_timed=True))


def played(**changes: object) -> Row:
    row: Row = {"model": "1.5B", "ms": 30.0, "is_prefetch": False, "prompt": 2000, "recomputed": 2, "generated": 9}
    return row | {"forwards": 10, "eager": 0} | changes


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"recomputed": 2000}, ["1.5B: prompts are reused"]),
        ({"eager": 5}, ["1.5B: forwards are replayed"]),
        ({"generated": 0}, ["1.5B: text is generated"]),
    ],
)
def test_a_session_must_reuse_replay_and_generate(changes: Row, names: list[str]) -> None:
    rows = [played(recomputed=2000, eager=9), *[played(**changes)] * 5]  # the first prompt is cold
    assert failed(serving._about_session(rows, FULL)) == names


def test_what_is_saved_must_be_found_after_a_restart() -> None:
    rows = [played(first="cold"), played(first="warm", recomputed=1), played(first="restarted", recomputed=1)]
    assert not failed(serving._about_session(rows, FULL))
    rows[2]["recomputed"] = 2000
    assert failed(serving._about_session(rows, FULL)) == ["after a restart the prompt is found on disk"]


def test_float32_texts_must_be_equal() -> None:
    def row(way: str, **changes: object) -> Row:
        return {"way": way, "equal": True, "distance": 0.0, "reused": 9, "recomputed": 1} | changes

    assert not failed(serving._about_reuse([row("float32", distance=1e-6), row("bfloat16", equal=False)]))
    assert failed(serving._about_reuse([row("float32", equal=False)])) == ["float32: every text is the cold one"]


def test_memory_must_drop_slots_stop_recording_and_return() -> None:
    rows: list[Row] = [
        {"workspace_bytes": 1, "ballast_bytes": 1, "baseline_bytes": 10**9},
        {"asked": 8, "answered": 8, "capacity": 2, "of": 8},
        {"recordings": 3, "again": False},
        {"baseline_bytes": 10**9, "free_bytes": 10**9, "state": "unloaded"},
    ]
    assert not failed(memory._about_memory(rows))
    rows[1] |= {"answered": 7, "capacity": 8}
    rows[2]["again"] = True
    rows[3] |= {"free_bytes": 5 * 10**8, "state": "ready"}
    assert len(failed(memory._about_memory(rows))) == 5


def test_a_lost_device_must_be_told_and_end_the_process() -> None:
    row: Row = {"status": losing.STATUS, "answers": ["Completion", "DeviceLost"], "lost": True}
    row |= {"state": "failed", "output": ""}
    assert not failed(losing._conclude([row]))
    assert len(failed(losing._conclude([{"status": 1, "output": "Segmentation fault"}]))) == 3


def test_needed_packages_must_be_there() -> None:
    rows: list[Row] = [
        {"package": "torch", "version": "2.11.0", "needed": True},
        {"package": "msgspec", "version": None, "needed": True},
        {"package": "triton", "version": None, "needed": False},
    ]
    found = list(machine._about_machine(rows, is_real=True))
    assert failed(found) == ["msgspec is installed"]
    assert found[-1] == "without triton"


def test_split_attention_is_compared_as_far_as_kernels_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    now, built = [0.0], list[tuple[str, torch.dtype]]()

    def build(_: object, __: object, geometry: str, dtype: torch.dtype, *, split: bool) -> None:
        assert split
        now[0] += 9.0
        built.append((geometry, dtype))

    def compared(_: object, __: object, tokens: int, resident: int) -> list[Row]:
        return [{"tokens": tokens, "resident": resident, "way": "split", "split": True, "error": 0.0, "kv_error": 0.0}]

    monkeypatch.setattr(correctness, "_Case", build)
    monkeypatch.setattr(correctness, "_compared", compared)
    monkeypatch.setattr("proof.card.find_spec", lambda _: True)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rows = list(correctness._measure_split(Card(torch.device("cpu"), rounds=1), replace(FULL, split_s=20.0)))
    assert len(built) == 2  # a third would end after 27 seconds, and 32 tokens of the second after 21
    assert built[0][0] == built[1][0]
    of_one = len(FULL.resident)
    assert len(rows) == 7 * of_one
    assert f"{7 * of_one} of {40 * of_one} cases, 1 geometries" in list(correctness._conclude(rows))


@pytest.mark.parametrize(("error", "count"), [(3e-3, 0), (2e-2, 1)])
def test_a_candidate_must_be_right_and_its_fastest_tiles_are_named(error: float, count: int) -> None:
    tiles = {"qkv": {"(4, 512, 4, 3)": 9.0, "(8, 512, 4, 3)": 7.0}}
    row = {"model": "1.5B", "rows": 4, "today_us": 50.0, "candidate_us": 25.0, "bytes": 10**8, "tiles": tiles, "error": error}
    findings = list(candidates._conclude([row]))
    assert len(failed(findings)) == count
    assert "today 50.0 us (2.00 TB/s), candidate 25.0 us (4.00 TB/s); best tiles: qkv (8, 512, 4, 3)" in str(findings[-1])
