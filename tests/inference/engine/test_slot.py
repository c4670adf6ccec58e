from __future__ import annotations

from inference.engine.slots import SAVE_BEYOND, Slot
from inference.text.token_ids import packed
from kv_store.interface import DryWorkspace
from kv_store.snapshots import Snapshots, StateSnapshot
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier

PROMPT = tuple(range(100, 140))


def resident(budget_bytes: int = 2**20) -> Slot:
    workspace = DryWorkspace(bytes_per_token=4)
    return Slot(workspace, PagedStore([Tier("device", budget_bytes, MemoryStorage())], 4))


def compute(prompt: Slot, ids: tuple[int, ...], session: str = "a") -> int:
    """What the engine does with a prompt; how many tokens it computed."""
    token_ids = packed(ids)
    length = prompt.prepare(token_ids[:-1], session)
    assert token_ids[:length] == prompt.token_ids
    prompt.extend(token_ids[length:], is_prompt=True)
    return len(token_ids) - length


def forget(prompt: Slot, session: str) -> None:
    prompt.forget(session)
    prompt.store.purge(session)


def in_store(prompt: Slot, token_ids: tuple[int, ...]) -> int:
    with prompt.store.match_prefix(token_ids) as match:
        return match.length


def test_typing_copies_nothing_to_the_store() -> None:
    prompt = resident()
    assert compute(prompt, PROMPT) == len(PROMPT)
    assert compute(prompt, (*PROMPT, 1)) == 1
    assert compute(prompt, (*PROMPT[:-2], 7, 8, 9)) == 3
    assert prompt.store.stats().tokens == 0


def test_long_crop_saves_the_prompt_first() -> None:
    prompt = resident()
    compute(prompt, PROMPT)
    compute(prompt, (*PROMPT[: -SAVE_BEYOND - 1], 7))
    assert in_store(prompt, PROMPT) == len(PROMPT)
    assert compute(prompt, PROMPT) == 1


def test_suggestions_are_not_saved() -> None:
    prompt = resident()
    compute(prompt, PROMPT)
    prompt.extend(packed(range(50)), is_prompt=False)
    compute(prompt, (*PROMPT, 7))
    assert prompt.store.stats().tokens == 0
    prompt.crop(0)
    assert prompt.store.stats().tokens == len(PROMPT) + 1


def test_accepted_suggestion_belongs_to_the_prompt() -> None:
    prompt = resident()
    compute(prompt, PROMPT)
    prompt.extend(packed((1, 2, 3)), is_prompt=False)
    assert compute(prompt, (*PROMPT, 1, 2, 3, 4)) == 1
    prompt.crop(0)
    assert in_store(prompt, (*PROMPT, 1, 2, 3, 4)) == len(PROMPT) + 4


def test_other_session_is_saved_under_its_own_name() -> None:
    prompt = resident()
    compute(prompt, PROMPT, "a")
    compute(prompt, (*PROMPT[:20], 7), "b")
    assert compute(prompt, PROMPT, "a") == 1
    forget(prompt, "b")
    assert in_store(prompt, PROMPT) == len(PROMPT)
    forget(prompt, "a")
    assert prompt.store.stats().tokens == 0
    assert compute(prompt, PROMPT, "a") == len(PROMPT)
    prompt.store.check_integrity()


def test_cold_runs_leave_nothing_behind() -> None:
    prompt = resident()
    compute(prompt, PROMPT)
    prompt.prepare_cold("a")
    prompt.extend(packed((9,) * 30), is_prompt=False)
    assert compute(prompt, PROMPT) == 1
    assert in_store(prompt, (9,) * 30) == 0


def test_store_without_room_only_costs_recomputation() -> None:
    prompt = resident(budget_bytes=0)
    compute(prompt, PROMPT)
    assert compute(prompt, (1, 2, 3)) == 3
    assert compute(prompt, PROMPT) == len(PROMPT)


def recurrent(positions: tuple[int, ...] = ()) -> Slot:
    """A slot of a model with recurrent layers, whose forwards end at these positions."""
    snapshots = Snapshots(2**20)
    for position in positions:
        snapshots.put(position, StateSnapshot(position, 1))
    return Slot(DryWorkspace(4, snapshots), PagedStore([Tier("device", 2**20, MemoryStorage())], 4))


def test_a_recurrent_model_goes_on_where_a_snapshot_is() -> None:
    slot = recurrent((10, 30, 40))
    compute(slot, PROMPT)
    assert compute(slot, (*PROMPT, 1)) == 1
    assert compute(slot, (*PROMPT[:35], 7)) == 6  # five more than with keys and values alone


def test_a_refused_draft_takes_a_recurrent_model_back_to_the_forward_before() -> None:
    slot = recurrent((40, 48))
    compute(slot, PROMPT)
    slot.extend(packed((1,)), False, packed((2, 3)))  # of a forward up to 48
    assert slot.token_ids == packed(PROMPT)
    slot.extend(packed((1,)), False, packed(range(2, 9)))
    assert len(slot.token_ids) == 48


def test_slots_of_a_recurrent_model_are_compared_by_where_it_goes_on() -> None:
    slot = recurrent((10, 40))
    compute(slot, PROMPT)
    assert slot.reusable(packed(PROMPT[:39])) == 10


def test_what_is_forgotten_leaves_no_snapshot() -> None:
    slot = recurrent((10, 40))
    compute(slot, PROMPT)
    slot.forget("a")
    assert (slot.token_ids, slot.workspace.resumable(40)) == (packed(), 0)
