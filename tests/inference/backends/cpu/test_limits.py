from __future__ import annotations

import pytest

from inference.backends.cpu.decoder import MAX_NEW_TOKENS, check_call
from inference.backends.model import Chunk
from kv_store.interface import DryWorkspace, Workspace
from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape


@pytest.mark.parametrize("kind", ["fallback", "kernel"])
@pytest.mark.parametrize(
    ("token_ids", "start", "complaint"),
    [
        ([], 0, "not 0"),
        ([1] * (MAX_NEW_TOKENS + 1), 0, "not 33"),
        ([1, 130], 0, "token ids 1 to 130 exceed the vocabulary of 130"),
        ([-1, 3], 0, "token ids -1 to 3"),
        ([1], -1, r"tokens \[-1, 0\)"),
        ([1, 1, 1], 98, r"tokens \[98, 101\) exceed a workspace of 100"),
    ],
)
def test_a_call_out_of_bounds_is_an_error(
    kind: str, token_ids: list[int], start: int, complaint: str, request: pytest.FixtureRequest
) -> None:
    model = RandomModel(Shape())
    decoder = model.fallback() if kind == "fallback" else request.getfixturevalue("compiled") or model.kernel()
    with pytest.raises(ValueError, match=complaint):
        decoder.forward([Chunk(token_ids, start, model.workspace(max_tokens=100))])


@pytest.mark.parametrize("wanted", [-1, 3])
def test_logits_of_tokens_that_are_not_there_are_an_error(wanted: int) -> None:
    model = RandomModel(Shape())
    with pytest.raises(ValueError, match=f"a chunk of 2 tokens cannot give {wanted} logits"):
        model.fallback().forward([Chunk([1, 2], 0, model.workspace(), wanted)])


def test_positions_end_where_the_tables_do() -> None:
    model = RandomModel(Shape())
    workspace = model.workspace(max_tokens=POSITIONS + 100)
    with pytest.raises(ValueError, match="exceed a workspace of 400"):
        model.fallback().forward([Chunk([1], POSITIONS, workspace)])


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        (KVShape(3, 2, 32, "float32"), "layers, key-value heads and head dimension"),
        (KVShape(2, 1, 32, "float32"), "layers, key-value heads and head dimension"),
        (KVShape(2, 2, 32, "float16"), "float16"),
    ],
)
def test_a_workspace_of_another_model_is_an_error(shape: KVShape, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RandomModel(Shape()).fallback().forward([Chunk([1], 0, KVWorkspace(shape, 100))])


def test_a_call_of_several_sequences_has_its_bounds_too() -> None:
    decoder = RandomModel(Shape()).fallback()
    workspaces = [RandomModel(Shape()).workspace() for _ in range(3)]
    with pytest.raises(ValueError, match="new tokens, not 33"):
        decoder.forward([Chunk([1] * 11, 0, workspace) for workspace in workspaces])
    with pytest.raises(ValueError, match="a chunk needs at least one new token"):
        decoder.forward([Chunk([1], 0, workspaces[0]), Chunk([], 0, workspaces[1])])
    with pytest.raises(ValueError, match="one chunk per workspace"):
        decoder.forward([Chunk([1], start, workspaces[0]) for start in (0, 1)])


@pytest.mark.parametrize("workspace", [DryWorkspace(8), KVWorkspace(KVShape(2, 2, 32, "float32"), 100, "meta")])
def test_a_workspace_without_buffers_in_main_memory_is_an_error(workspace: Workspace) -> None:
    with pytest.raises(TypeError, match=f"the kernel needs a workspace in main memory, not a {type(workspace).__name__}"):
        check_call(Shape().architecture, POSITIONS, [Chunk([1], 0, workspace)])
