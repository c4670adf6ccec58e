import logging
from pathlib import Path

import pytest
import torch

from kv_store.page_folder import PageFolder
from kv_store.store import PagedStore

IDS = tuple(range(40))


def insert(kv, store: PagedStore, token_ids: tuple[int, ...], owner: str = "a") -> None:
    store.insert_prefix(token_ids, kv.workspace(token_ids), owner)


def loadable(kv, store: PagedStore, token_ids: tuple[int, ...]) -> int:
    """How many tokens can be loaded, all of them right."""
    workspace = kv.workspace()
    with store.match_prefix(token_ids) as match:
        loaded = match.load(workspace)
    store.check_integrity()
    assert kv.held(workspace, token_ids) == [place < loaded for place in range(len(token_ids))]
    return loaded


def page_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.safetensors"))


@pytest.fixture
def saved(kv, make_store) -> None:
    """40 tokens of owner a, in three files."""
    store = make_store(disk=200)
    insert(kv, store, IDS)
    assert store.save() == 40
    store.check_integrity()
    store.close()


def test_what_was_saved_is_resident_after_a_restart_bit_by_bit(saved: None, kv, make_store) -> None:
    store = make_store(disk=200)
    store.check_integrity()
    assert [tier.tokens for tier in store.stats().tiers] == [0, 40], "nothing is read before it is matched"
    workspace = kv.workspace()
    with store.match_prefix(IDS) as match:
        assert match.load(workspace) == 40
    assert workspace.buffer[..., :40, :].view(torch.int32).equal(kv.of(IDS).view(torch.int32))
    assert [tier.tokens for tier in store.stats().tiers] == [40, 40], "it moved up; its copy on disk stays"
    assert store.stats().refused == ()


def test_saving_goes_on_with_what_was_restored(saved: None, kv, make_store, tmp_path: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in page_files(tmp_path)}
    store = make_store(disk=200)
    insert(kv, store, (*IDS[:20], 7, 7))
    assert store.save() == 46
    store.close()
    assert files.items() <= {path: path.stat().st_mtime_ns for path in page_files(tmp_path)}.items()
    store = make_store(disk=200)
    assert loadable(kv, store, IDS) == 40
    assert loadable(kv, store, (*IDS[:20], 7, 7)) == 22


def test_the_most_recently_used_is_saved_where_the_budget_is_small(kv, make_store, tmp_path: Path) -> None:
    other = tuple(range(100, 148))
    store = make_store(disk=64)
    insert(kv, store, IDS)
    insert(kv, store, other)
    loadable(kv, store, IDS)
    store.save()
    store.check_integrity()
    store.close()
    written = page_files(tmp_path)
    assert written[-1].stem == f"{len(written):08x}", "nothing was written that could not stay"
    store = make_store(disk=64)
    assert loadable(kv, store, IDS) == 40
    assert loadable(kv, store, other) == 16


def test_what_is_on_disk_already_stays_there_if_it_was_used_recently(kv, make_store) -> None:
    prompts = {name: tuple(range(place * 100, place * 100 + 16)) for place, name in enumerate("wxyz")}
    store = make_store(device=48, disk=48)
    insert(kv, store, prompts["x"])
    store.save()
    insert(kv, store, prompts["y"])
    insert(kv, store, prompts["z"])
    loadable(kv, store, prompts["x"])
    insert(kv, store, prompts["w"])  # y goes down, behind x
    store.save()
    store.close()
    store = make_store(disk=48)
    assert {name: loadable(kv, store, token_ids) for name, token_ids in prompts.items()} == {
        "w": 16,
        "x": 16,
        "y": 0,
        "z": 16,
    }


def test_what_is_pinned_is_saved_too(kv, make_store) -> None:
    store = make_store(disk=200)
    insert(kv, store, IDS)
    store.pin("a")
    assert store.save() == 40
    store.close()
    assert loadable(kv, make_store(disk=200), IDS) == 40


def test_a_tail_on_disk_is_not_saved_without_its_beginning(kv, make_store) -> None:
    store = make_store(device=48, disk=16)
    insert(kv, store, IDS[:32])
    insert(kv, store, tuple(range(100, 132)), "b")
    assert [tier.tokens for tier in store.stats().tiers] == [48, 16]
    store.pin("a")
    assert store.save() == 0, "the pinned tail leaves no room for what comes before it"
    store.check_integrity()


def test_pages_that_came_down_are_saved_without_being_written_again(kv, make_store) -> None:
    store = make_store(device=48, disk=200)
    insert(kv, store, IDS)
    insert(kv, store, tuple(range(100, 148)))
    assert [tier.tokens for tier in store.stats().tiers] == [48, 40]
    assert store.save() == 88
    store.close()
    store = make_store(device=48, disk=200)
    assert loadable(kv, store, IDS) == 40
    assert loadable(kv, store, tuple(range(100, 148))) == 48


def test_what_was_not_saved_is_gone_from_disk_after_a_restart(kv, make_store, tmp_path: Path) -> None:
    store = make_store(device=48, disk=200)
    insert(kv, store, IDS)
    insert(kv, store, tuple(range(100, 148)))
    assert page_files(tmp_path)
    store.close()
    make_store(disk=200).check_integrity()
    assert not page_files(tmp_path)


def test_a_purged_owner_leaves_nothing_on_disk(saved: None, kv, make_store, tmp_path: Path) -> None:
    store = make_store(disk=200)
    other = (*IDS[:16], *range(200, 210))
    insert(kv, store, other, "b")
    store.save()
    assert store.purge("a") == 24
    store.check_integrity()
    (index,) = tmp_path.rglob("index.json")
    assert b'"a"' not in index.read_bytes()
    store.close()
    store = make_store(disk=200)
    assert loadable(kv, store, IDS) == 16, "b used these as well"
    assert loadable(kv, store, other) == 26
    assert store.purge("b") == 26
    assert not page_files(tmp_path)


@pytest.mark.parametrize("how", ["cut", "grown", "gone"])
def test_a_file_of_another_size_is_refused_at_the_start(
    how: str, saved: None, kv, make_store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = page_files(tmp_path)[1]
    match how:
        case "cut":
            bad.write_bytes(bad.read_bytes()[:-1])
        case "grown":
            bad.write_bytes(bad.read_bytes() + b" ")
        case "gone":
            bad.unlink()
    store = make_store(disk=200)
    store.check_integrity()
    (reason,) = store.stats().refused
    assert reason.startswith(f"{bad}: ")
    assert ("kv_store.residency", logging.WARNING, f"refused {reason}") in caplog.record_tuples
    assert not bad.exists()
    assert loadable(kv, store, IDS) == 16, "the bad page was the second"
    insert(kv, store, IDS)
    assert loadable(kv, store, IDS) == 40


def test_a_flipped_bit_is_found_when_the_page_is_loaded(saved: None, kv, make_store, tmp_path: Path) -> None:
    for bad in page_files(tmp_path):
        data = bytearray(bad.read_bytes())
        data[-5] ^= 1
        bad.write_bytes(data)
    store = make_store(disk=200)
    assert store.stats().refused == ()
    assert loadable(kv, store, IDS) == 0
    (reason,) = store.stats().refused
    assert "corrupt: its checksum differs" in reason
    assert not page_files(tmp_path), "what follows a bad page is of no use"


def test_what_is_in_memory_too_outlives_its_bad_copy(kv, make_store, tmp_path: Path) -> None:
    store = make_store(disk=200)
    insert(kv, store, IDS)
    store.save()
    for bad in page_files(tmp_path):
        bad.write_bytes(b"")
    assert loadable(kv, store, IDS) == 40


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-3], "truncated or corrupt"),
        (lambda data: data.replace(b'"pages"', b'"paGes"'), "truncated or corrupt"),
        (lambda data: b"", "not an index"),
        (lambda data: b"\xff\x00\n", "not an index"),
        (lambda data: b"[]\n[]", "another version"),
        (lambda data: data.replace(b"index 1", b"index 2"), "another version"),
    ],
)
def test_a_bad_index_is_refused_and_the_store_goes_on(
    damage, reason: str, saved: None, kv, make_store, tmp_path: Path
) -> None:
    (index,) = tmp_path.rglob("index.json")
    index.write_bytes(damage(index.read_bytes()))
    store = make_store(disk=200)
    store.check_integrity()
    (refused,) = store.stats().refused
    assert refused.startswith(f"{index}: ")
    assert reason in refused
    assert not page_files(tmp_path)
    assert not index.exists()
    assert loadable(kv, store, IDS) == 0
    insert(kv, store, IDS)
    store.save()
    store.close()
    assert loadable(kv, make_store(disk=200), IDS) == 40


def test_pages_of_another_model_are_refused_and_removed(saved: None, kv, make_store, tmp_path: Path) -> None:
    (index,) = tmp_path.rglob("index.json")
    store = make_store(disk=200, fingerprint="another model")
    (refused,) = store.stats().refused
    assert refused.startswith(f"{index}: saved with other weights")
    assert not index.parent.exists()
    assert loadable(kv, store, IDS) == 0


def test_an_index_of_another_model_in_our_place_is_refused(saved: None, kv, make_store, tmp_path: Path) -> None:
    (index,) = tmp_path.rglob("index.json")
    text = index.read_bytes()
    store = make_store(disk=200, fingerprint="another model")
    store.close()
    moved = next(path for path in tmp_path.iterdir() if path.is_dir()) / "index.json"
    moved.write_bytes(text)
    store = make_store(disk=200, fingerprint="another model")
    (refused,) = store.stats().refused
    assert refused == f"{moved}: saved with other weights, tokenizer, dtype or RoPE settings"


def test_more_than_the_budget_is_refused(saved: None, kv, make_store, tmp_path: Path) -> None:
    store = make_store(disk=32)
    store.check_integrity()
    (refused,) = store.stats().refused
    assert "beyond the disk tier's budget" in refused
    assert loadable(kv, store, IDS) == 32
    assert len(page_files(tmp_path)) == 2


def test_an_oversized_index_is_not_read(
    saved: None, kv, make_store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kv_store.page_folder.MAX_INDEX_BYTES", 100)
    store = make_store(disk=200)
    (refused,) = store.stats().refused
    assert "index.json: oversized" in refused


def test_a_folder_that_cannot_be_written_to_any_more_is_passed_over(kv, make_store, monkeypatch) -> None:
    store = make_store(device=48, disk=200)
    insert(kv, store, IDS)

    def full(*_: object) -> PageFolder:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kv_store.page_folder._write_private", full)
    insert(kv, store, tuple(range(100, 148)))
    store.check_integrity()
    assert [tier.tokens for tier in store.stats().tiers] == [48, 0]
    with pytest.raises(OSError, match="No space left"):
        store.save()
    store.check_integrity()
