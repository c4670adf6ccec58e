import logging
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch

from kv_store.disk_folders import INDEX_NAME
from kv_store.page_tree import REMEMBERED_OWNERS
from kv_store.persistence import BATCH_PAGES, purge_saved
from kv_store.store import PagedStore

IDS = tuple(range(40))


def insert(kv, store: PagedStore, token_ids: tuple[int, ...], session: str = "a") -> None:
    store.insert_prefix(token_ids, kv.workspace(token_ids), session)


def loadable(kv, store: PagedStore, token_ids: tuple[int, ...]) -> int:
    """How many tokens can be loaded, all of them right."""
    workspace = kv.workspace()
    with store.match_prefix(token_ids) as match:
        loaded = match.load(workspace)
    store.check_integrity()
    assert kv.held(workspace, token_ids) == [place < loaded for place in range(len(token_ids))]
    return loaded


def on_disk(store: PagedStore) -> int:
    """Tokens in the last tier."""
    return store.stats().tiers[-1].tokens


def index_of(root: Path) -> Path:
    (index,) = root.rglob(INDEX_NAME)
    return index


def page_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.safetensors"))


@pytest.fixture
def saved(kv, make_store) -> None:
    """40 tokens of session a, in three files."""
    store = make_store(disk=200)
    insert(kv, store, IDS)
    assert store.save()
    assert on_disk(store) == 40
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


def test_namespaces_stay_apart_after_a_restart(kv, make_store) -> None:
    store = make_store(disk=200)
    for namespace, ids in (("ann", IDS), ("bob", IDS[:20])):
        store.insert_prefix(ids, kv.workspace(ids), f"client/{namespace}/document", namespace)
    assert store.save()
    store.check_integrity()
    store.close()
    store = make_store(disk=200)
    store.check_integrity()
    assert on_disk(store) == len(IDS) + 20
    for namespace, length in (("ann", len(IDS)), ("bob", 20), ("", 0), ("cy", 0)):
        with store.match_prefix(IDS, namespace) as match:
            assert match.load(kv.workspace()) == length
    assert store.purge("other/ann/document") == len(IDS)
    with store.match_prefix(IDS, "bob") as match:
        assert match.length == 20


def test_saving_goes_on_with_what_was_restored(saved: None, kv, make_store, tmp_path: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in page_files(tmp_path)}
    store = make_store(disk=200)
    insert(kv, store, (*IDS[:20], 7, 7))
    assert store.save()
    assert on_disk(store) == 46
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
    assert {name: loadable(kv, store, token_ids) for name, token_ids in prompts.items()} == {"w": 16, "x": 16, "y": 0, "z": 16}


def test_what_is_pinned_is_saved_too(kv, make_store) -> None:
    store = make_store(disk=200)
    insert(kv, store, IDS)
    store.pin("a")
    assert store.save()
    store.close()
    assert loadable(kv, make_store(disk=200), IDS) == 40


def test_a_document_that_was_open_is_not_evicted_before_one_that_was_closed(kv, make_store) -> None:
    closed, opened, later = (tuple(range(first, first + 16)) for first in (0, 100, 200))
    store = make_store(disk=32)
    insert(kv, store, closed, "closed")
    store.pin("opened")
    insert(kv, store, opened, "opened")
    store.save()
    store.close()
    store = make_store(disk=32)
    insert(kv, store, later, "later")
    store.save()
    store.close()
    store = make_store(disk=32)
    assert [loadable(kv, store, token_ids) for token_ids in (closed, opened, later)] == [0, 16, 16]


def test_the_order_of_use_outlives_every_restart(kv, make_store) -> None:
    often, lately, now = (tuple(range(first, first + 16)) for first in (0, 100, 200))
    store = make_store(disk=32)
    insert(kv, store, lately)
    insert(kv, store, often)
    for _ in range(50):
        assert loadable(kv, store, often) == 16
    store.save()
    store.close()
    store = make_store(disk=32)
    assert loadable(kv, store, lately) == 16
    store.save()
    store.close()
    store = make_store(disk=32)
    insert(kv, store, now)
    store.save()
    store.close()
    store = make_store(disk=32)
    assert [loadable(kv, store, token_ids) for token_ids in (often, lately, now)] == [0, 16, 16]


def test_a_tail_on_disk_is_not_found_without_its_beginning(kv, make_store, tmp_path: Path) -> None:
    store = make_store(device=48, disk=16)
    insert(kv, store, IDS[:32])
    insert(kv, store, tuple(range(100, 132)), "b")
    assert [tier.tokens for tier in store.stats().tiers] == [48, 16]
    store.pin("a")
    assert store.save(), "the pinned tail leaves no room for what comes before it"
    store.check_integrity()
    store.close()
    assert loadable(kv, make_store(disk=16), IDS) == 0
    assert not page_files(tmp_path)


def test_what_a_killed_process_had_evicted_from_disk_leaves_what_comes_before_it(kv, make_store) -> None:
    store = make_store(disk=48)
    insert(kv, store, IDS)
    store.save()
    insert(kv, store, tuple(range(100, 132)), "b")
    store.save()  # the index names the owner of what is the last saved page of `IDS` now
    store._folder.close()
    store = make_store(disk=48)
    assert loadable(kv, store, IDS) == 16
    assert store.stats().refused == ()


def test_a_purged_session_leaves_nothing_on_disk(saved: None, kv, make_store, tmp_path: Path) -> None:
    store = make_store(disk=200)
    other = (*IDS[:16], *range(200, 210))
    insert(kv, store, other, "b")
    store.save()
    assert store.purge("a") == 24
    store.check_integrity()
    store.close()
    store = make_store(disk=200)
    assert loadable(kv, store, IDS) == 16, "b used these as well"
    assert loadable(kv, store, other) == 26
    assert store.purge("b") == 26
    assert not page_files(tmp_path)


def test_saving_in_steps_saves_the_newest_first_and_goes_on_where_it_left_off(kv, make_store) -> None:
    store = make_store(disk=400)
    prompts = [tuple(range(first, first + 48)) for first in (0, 100, 200)]
    for prompt in prompts:
        insert(kv, store, prompt)
    for steps in range(1, 10):
        is_done = store.save(seconds=0)
        store.check_integrity()
        assert on_disk(store) == 16 * steps, "a page is one step's least, and with no time its most"
        if steps == 3:
            store._folder.close()  # the process is killed
            found = make_store(disk=400)
            assert [loadable(kv, found, prompt) for prompt in prompts] == [0, 0, 48]
            found._folder.close()
            store = make_store(disk=400)
            insert(kv, store, prompts[0])
            insert(kv, store, prompts[1])
    assert is_done is False, "it does not know yet that this was the last"
    assert store.save(seconds=0)
    store.close()
    store = make_store(disk=400)
    assert [loadable(kv, store, prompt) for prompt in prompts] == [48, 48, 48]


def test_saving_never_takes_the_place_of_what_was_used_more_recently(kv, make_store) -> None:
    store = make_store(disk=64)
    prompts = [tuple(range(first, first + 32)) for first in (0, 100, 200, 300)]
    for prompt in prompts:
        insert(kv, store, prompt)
    while not store.save(seconds=0):
        store.check_integrity()
    store.close()
    store = make_store(disk=64)
    assert [loadable(kv, store, prompt) for prompt in prompts] == [0, 0, 32, 32]


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
    assert ("kv_store.tiers", logging.WARNING, f"refused {reason}") in caplog.record_tuples
    assert not bad.exists()
    assert loadable(kv, store, IDS) == 16, "the bad page was the second"
    insert(kv, store, IDS)
    assert loadable(kv, store, IDS) == 40


def test_what_is_in_memory_too_outlives_its_bad_copy(kv, make_store, tmp_path: Path) -> None:
    store = make_store(disk=200)
    insert(kv, store, IDS)
    store.save()
    for bad in page_files(tmp_path):
        bad.write_bytes(b"")
    assert loadable(kv, store, IDS) == 40


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def in_place_of(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("cut", lambda path: os.truncate(path, path.stat().st_size // 2 + 1), "."),
    ("nonsense", lambda path: path.write_bytes(b"[" * 100_000), "not a database"),
    ("JSON of an earlier version", lambda path: path.write_text('{"format": "midfill kv index 1"}'), "not a database"),
    ("zeros inside", lambda path: overwrite(path, 4096, bytes(4096)), "."),
    ("another version", lambda path: execute(path, "ALTER TABLE pages ADD COLUMN more"), "another version"),
    ("a trigger", lambda path: execute(path, "CREATE VIEW v AS SELECT 1"), "another version"),
    ("wrong types", lambda path: execute(path, "UPDATE pages SET token_ids = 7"), "Expected `bytes`"),
    ("text for tokens", lambda path: execute(path, "UPDATE pages SET token_ids = 'text'"), "does not fit"),
    ("numbers that are none", lambda path: execute(path, "UPDATE pages SET size = 1.5"), "Expected `int`"),
    ("owners that are none", lambda path: execute(path, "UPDATE owners SET document = x'00'"), "Expected `str`"),
    ("no owners", lambda path: execute(path, "DELETE FROM owners"), "names no document"),
    ("owners of too much", lambda path: execute(path, "UPDATE owners SET count = 99"), "names no document"),
    ("other tokens", lambda path: execute(path, "UPDATE pages SET token_ids = zeroblob(64)"), "does not fit"),
    ("no tokens", lambda path: execute(path, "UPDATE pages SET token_ids = x''"), "does not fit"),
    ("too many tokens", lambda path: execute(path, "UPDATE pages SET token_ids = zeroblob(4000000)"), "does not fit"),
    ("a negative size", lambda path: execute(path, "UPDATE pages SET size = -1"), "truncated or oversized"),
    ("a huge number", lambda path: execute(path, "UPDATE pages SET number = number + (1 << 60)"), "."),
    ("a folder in its place", in_place_of(Path.mkdir), "not a regular file"),
    ("a folder for its journal", lambda path: replace_journal(path, Path.mkdir), "not a regular file"),
    ("a pipe in its place", in_place_of(os.mkfifo), "not a regular file"),
    ("a pipe for its journal", lambda path: replace_journal(path, os.mkfifo), "not a regular file"),
    ("a link in its place", in_place_of(lambda path: path.symlink_to("/etc/passwd")), "not a regular file"),
    ("a loop of links", in_place_of(lambda path: path.symlink_to(path.name)), "not a regular file"),
    ("a folder for the lock", lambda path: in_place_of(Path.mkdir)(path.with_name("lock")), "not a regular file"),
    ("a pipe for the lock", lambda path: in_place_of(os.mkfifo)(path.with_name("lock")), "not a regular file"),
    ("a file for the folder", lambda path: replace_folder(path.parent, Path.touch), "File exists"),
    ("a pipe for the folder", lambda path: replace_folder(path.parent, os.mkfifo), "File exists"),
    ("a link for the folder", lambda path: replace_folder(path.parent, lambda at: at.symlink_to("/tmp")), "symbolic link"),
]


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(data)


def replace_journal(path: Path, make: Callable[[Path], object]) -> None:
    journal = path.with_name(f"{path.name}-journal")
    journal.unlink(missing_ok=True)
    make(journal)


def replace_folder(folder: Path, make: Callable[[Path], object]) -> None:
    shutil.rmtree(folder)
    make(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes in folders")
@pytest.mark.parametrize(("damage", "reason"), [case[1:] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_a_cache_that_cannot_be_used_is_set_aside_and_the_store_goes_on(
    damage, reason: str, saved: None, kv, make_store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(index_of(tmp_path))
    store = make_store(disk=200)
    store.check_integrity()
    assert re.search(reason, store.stats().refused[0])
    assert [record.levelname for record in caplog.records] == ["WARNING"], "one line"
    assert not page_files(tmp_path), "what could not be purged any more is not kept"
    assert loadable(kv, store, IDS) == 0
    insert(kv, store, IDS)
    assert store.save()
    store.close()
    assert loadable(kv, make_store(disk=200), IDS) == 40


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may read everything")
@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_cache_that_may_not_be_read_or_written(mode: int, saved: None, kv, make_store, tmp_path: Path) -> None:
    index_of(tmp_path).chmod(mode)
    store = make_store(disk=200)
    assert "Permission denied" in store.stats().refused[0]
    assert loadable(kv, store, IDS) == 0


def test_what_is_set_aside_is_told_from_what_is_ours(saved: None, make_store, tmp_path: Path) -> None:
    """A folder with somebody's file stands where the index should."""
    index = index_of(tmp_path)
    index.unlink()
    index.mkdir()
    (index / "notes.txt").write_text("mine")
    make_store(disk=200).close()
    (notes,) = tmp_path.rglob("notes.txt")
    assert notes.parents[1].name == f"{index.parent.name}.unusable"
    assert [path.name for path in notes.parents[1].iterdir()] == [INDEX_NAME]


def test_pages_of_another_model_are_refused_and_removed(saved: None, kv, make_store, tmp_path: Path) -> None:
    index = index_of(tmp_path)
    store = make_store(disk=200, fingerprint="another model")
    (refused,) = store.stats().refused
    assert refused.startswith(f"{index.parent}: saved with other weights")
    assert not index.parent.exists()
    assert loadable(kv, store, IDS) == 0


def test_an_index_of_another_model_in_our_place_is_not_used(saved: None, kv, make_store, tmp_path: Path) -> None:
    theirs = index_of(tmp_path).parent
    kept = tmp_path / "kept"
    shutil.copytree(theirs, kept)
    make_store(disk=200, fingerprint="another model").close()
    ours = index_of(tmp_path / next(path.name for path in tmp_path.iterdir() if path != kept)).parent
    shutil.rmtree(ours)
    kept.rename(ours)
    store = make_store(disk=200, fingerprint="another model")
    assert loadable(kv, store, IDS) == 0
    assert not page_files(tmp_path)


def test_more_than_the_budget_is_refused(saved: None, kv, make_store, tmp_path: Path) -> None:
    store = make_store(disk=32)
    store.check_integrity()
    (refused,) = store.stats().refused
    assert "beyond the disk tier's budget" in refused
    assert loadable(kv, store, IDS) == 32
    assert len(page_files(tmp_path)) == 2


def test_an_oversized_index_is_not_read(saved: None, kv, make_store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kv_store.disk_folders.MAX_INDEX_BYTES", 100)
    assert "oversized: more than 100 bytes" in make_store(disk=200).stats().refused[0]


def test_an_index_of_very_many_pages_is_read(kv, make_store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(disk=4000)
    for first in range(0, 1000, 40):
        insert(kv, store, tuple(range(first, first + 32)))
    store.save()
    store.close()
    monkeypatch.setattr("kv_store.disk_folders.MAX_INDEX_BYTES", 100)
    assert index_of(tmp_path).stat().st_size > 100
    assert on_disk(make_store(disk=4000)) == 800


def test_a_full_disk_is_said_once_and_written_to_again(kv, make_store, monkeypatch, caplog) -> None:
    store = make_store(device=48, disk=200)
    monkeypatch.setattr(store._folder, "_min_free_bytes", 2**60)
    for first in range(0, 1000, 100):
        insert(kv, store, tuple(range(first, first + 48)))
    assert store.save(), "there is nothing that could be done"
    store.check_integrity()
    assert [tier.tokens for tier in store.stats().tiers] == [48, 0]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.setattr(store._folder, "_min_free_bytes", 0)
    assert store.save()
    assert on_disk(store) == 48


def test_a_purge_costs_what_it_drops_and_not_the_index(kv, make_store) -> None:
    store = make_store(device=4000, disk=4000)
    for number in range(100):
        insert(kv, store, tuple(range(number * 40, number * 40 + 32)), f"run/{number}.py")
    store.save()
    statements: list[str] = []
    store._folder.index._database.set_trace_callback(statements.append)
    assert store.purge("*/7.py") == 32
    assert len(statements) <= 2 + 3 * 2 + 1, statements


def written_rows(store: PagedStore, seconds: float | None) -> int:
    """The rows of pages and owners that one save writes."""
    statements: list[str] = []
    store._folder.index._database.set_trace_callback(statements.append)
    store.save(seconds)
    store._folder.index._database.set_trace_callback(None)
    return sum(statement.startswith(("REPLACE", "INSERT")) for statement in statements)


def test_what_is_saved_of_a_prefix_does_not_grow_with_the_sessions_that_share_it(kv, make_store, tmp_path) -> None:
    store, ids = make_store(disk=200), tuple(range(96))
    workspace = kv.workspace(ids)
    for number in range(1000):
        session = f"http/ann/{number}"
        store.pin(session)
        store.insert_prefix(ids, workspace, session)
        store.unpin(session)
        if number in (0, 499, 999):
            rows = written_rows(store, 0.02 if number else None)
            assert number == 0 or rows <= 1 + REMEMBERED_OWNERS, "the last page and its owners"
    assert max(len(page.owners) for page in store._tree.pages()) == REMEMBERED_OWNERS
    assert index_of(tmp_path).stat().st_size <= 8 * 4096
    store.close()
    store = make_store(disk=200)
    assert loadable(kv, store, ids) == 96
    assert store.purge("http/ann/0") == 0
    assert [store.purge(f"http/ann/{number}") for number in range(992, 1000)] == [0] * 7 + [96]


def test_a_key_in_one_of_many_files_that_begin_alike_writes_few_rows(kv, make_store) -> None:
    store = make_store(device=20_000, disk=20_000)
    files = {f"run/{number}.py": (*range(64), 100 + number, *range(20)) for number in range(200)}
    for session, ids in files.items():
        insert(kv, store, ids, session)
    store.save()
    insert(kv, store, (*files["run/77.py"], 7), "run/77.py")
    assert written_rows(store, 0.02) <= 4
    store.close()
    store = make_store(device=20_000, disk=20_000)
    assert [store.purge(session) for session in files][-1] == 64 + 16 + 5, "the common beginning goes with the last"
    assert on_disk(store) == 0


def test_the_first_save_after_a_restart_has_nothing_to_write(saved: None, kv, make_store) -> None:
    store = make_store(disk=200)
    assert store._folder.index._database.total_changes == 0, "nor has the restart"
    assert written_rows(store, None) == 0
    loadable(kv, store, IDS)
    assert written_rows(store, None) == 2, "what was used: its last page, with the owner"


def test_a_saving_step_writes_at_most_a_batch_of_what_is_due(kv, make_store) -> None:
    store = make_store(device=48, disk=4000)
    for first in range(0, 4000, 40):
        insert(kv, store, tuple(range(first, first + 32)))
    due = len(store._residency.changed)
    assert due > 2 * BATCH_PAGES, "they have come down"
    assert written_rows(store, 0) <= 2 * BATCH_PAGES, "a page and an owner each"
    steps = 2
    while not store.save(0):
        steps += 1
    assert steps >= due / BATCH_PAGES
    store._folder.close()  # the process is killed
    assert on_disk(make_store(disk=4000)) == 3200


def test_a_document_is_purged_from_what_no_process_has_open_as_from_a_store(kv, make_store, tmp_path: Path) -> None:
    store = make_store(disk=400)
    insert(kv, store, (*IDS[:20], 7, 7), "run/other.py")
    insert(kv, store, IDS, "run/secret.py")
    store.save()
    purge_saved(tmp_path, "*/secret.py")
    assert on_disk(store) == 46, "another process is left alone"
    store.close()
    purge_saved(tmp_path, "*/secret.py")
    assert b"secret.py" not in index_of(tmp_path).read_bytes()
    assert len(page_files(tmp_path)) == 2
    store = make_store(disk=400)
    assert store.stats().refused == ()
    assert loadable(kv, store, (*IDS[:20], 7, 7)) == 22
    assert loadable(kv, store, IDS) == 20
    store.close()
    index_of(tmp_path).write_bytes(b"nonsense")
    purge_saved(tmp_path, "*/other.py")
    assert not page_files(tmp_path)
    purge_saved(tmp_path / "nothing", "*/other.py")


def test_a_purge_reaches_the_other_folders_though_one_cannot_be_opened(
    saved: None, make_store, tmp_path: Path, monkeypatch
) -> None:
    (folder,) = (path.parent for path in tmp_path.rglob("lock"))
    other = folder.with_name("0" * 16)
    shutil.copytree(folder, other)
    chmod = Path.chmod

    def fail(path: Path, mode: int) -> None:
        if path == other:
            raise PermissionError(1, "Operation not permitted", str(path))
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", fail)
    with pytest.raises(OSError, match=r"0000000000000000: .*not permitted"):
        purge_saved(tmp_path, "a")
    assert list(other.glob("*.safetensors"))
    assert not list(folder.glob("*.safetensors"))


def test_a_purge_that_leaves_files_behind_is_an_error(saved: None, tmp_path: Path, monkeypatch) -> None:
    index_of(tmp_path).write_bytes(b"nonsense")
    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".safetensors":
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(OSError, match="safetensors cannot be removed"):
        purge_saved(tmp_path, "a")


def test_what_cannot_be_purged_alone_goes_with_all_the_rest(kv, make_store, tmp_path: Path, monkeypatch, caplog) -> None:
    store = make_store(disk=200)
    insert(kv, store, IDS, "run/secret.py")
    insert(kv, store, tuple(range(100, 132)), "run/other.py")
    store.save()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store._folder.index, "write", fail)
    assert store.purge("*/secret.py") == 40
    assert "removing all saved pages" in caplog.text
    store.check_integrity()
    assert not page_files(tmp_path)
    assert b"secret.py" not in index_of(tmp_path).read_bytes()
    assert store.save()
    store.close()
    assert loadable(kv, make_store(disk=200), tuple(range(100, 132))) == 32


def test_memory_is_purged_though_the_disk_has_become_read_only(kv, make_store, monkeypatch, caplog) -> None:
    store = make_store(disk=200)
    for session, token_ids in (("run/a.py", IDS), ("run/b.py", tuple(range(100, 132)))):
        insert(kv, store, token_ids, session)
    store.save()

    def fail(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "unlink", fail)
        disk.setattr(store._folder.index, "write", fail)
        for document in ("a.py", "b.py"):
            store.purge(f"*/{document}")
    assert (store.stats().tokens, set(store.documents())) == (0, set())
    assert caplog.text.count("the index may keep the name of a document that is purged") == 2
    insert(kv, store, IDS)
    store.save()
    store.purge("*/a")  # the disk can be written to again
    assert store.save()


def test_an_index_that_cannot_be_written_is_said_once_and_caught_up_with(kv, make_store, monkeypatch, caplog) -> None:
    store = make_store(disk=200)
    insert(kv, store, IDS)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store._folder.index, "write", fail)
        store.save()
        store.save()
    assert len(caplog.records) == 1
    store.close()
    assert loadable(kv, make_store(disk=200), IDS) == 40
