import os
import time
from pathlib import Path

import pytest

from inference.engine.sessions import session_key as key
from kv_store import purges
from kv_store.persistence import purge_saved
from kv_store.purges import PurgeJournal, digest
from kv_store.store import PagedStore
from tests.kv_store.integrity import check_integrity

IDS = tuple(range(40))


def insert(kv, store: PagedStore, token_ids: tuple[int, ...], session: str) -> None:
    store.insert_prefix(token_ids, kv.workspace(token_ids), key(session))


def resident(store: PagedStore, token_ids: tuple[int, ...]) -> int:
    with store.match_prefix(token_ids) as match:
        return match.length


def test_a_core_reads_what_others_have_purged_since_it_began_and_not_its_own(tmp_path: Path) -> None:
    first = PurgeJournal(tmp_path / "kv")
    assert not first.news()
    first.add("file:///a.py")
    second = PurgeJournal(tmp_path / "kv")
    second.add("file:///\ud800.py")
    second.add("file:///b.py")
    assert first.news() == {digest("file:///b.py"), digest("file:///\ud800.py")}
    assert not first.news()
    assert not second.news()
    (tmp_path / "kv" / "purges" / "notes.txt").touch()
    assert not second.news()
    assert not any("file" in path.name or path.read_bytes() for path in (tmp_path / "kv" / "purges").iterdir())


def test_what_another_core_purged_is_gone_from_a_folder_whose_core_ended_before_it_read_of_it(
    kv, make_store, tmp_path: Path
) -> None:
    store = make_store(disk=200)
    insert(kv, store, IDS, "run/secret.py")
    insert(kv, store, (*IDS[:20], 7, 7), "run/other.py")
    store.save()
    other = make_store(disk=200, fingerprint="another model")
    PurgeJournal(tmp_path).add("secret.py")
    purge_saved(tmp_path, "secret.py")
    assert resident(store, IDS) == 40, "it is in use"
    store._folder.close()  # the process is killed
    store = make_store(disk=200)
    check_integrity(store)
    assert resident(store, IDS) == 20
    assert resident(store, (*IDS[:20], 7, 7)) == 22
    assert store.stats().refused == ()
    assert not any(b"secret.py" in path.read_bytes() for path in tmp_path.rglob("index*"))
    other.close()


def test_old_entries_go_when_a_folder_is_opened(make_store, tmp_path: Path) -> None:
    PurgeJournal(tmp_path).add("new.py")
    (new,) = (tmp_path / "purges").iterdir()
    long_ago = time.time_ns() - int((purges.KEPT_S + 60) * 1e9)
    os.close(os.open(tmp_path / "purges" / f"{long_ago:016x}-{digest('old.py')}", os.O_CREAT))
    assert purges.purged(tmp_path) == {digest("new.py"), digest("old.py")}
    make_store(disk=200)
    assert list((tmp_path / "purges").iterdir()) == [new]


def test_the_journal_keeps_so_many_entries_and_whoever_reads_it_has_seen_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "MOST_ENTRIES", 40)
    writer, reader, seen, sizes = PurgeJournal(tmp_path), PurgeJournal(tmp_path), set[str](), []
    for number in range(500):
        writer.add(f"{number}.py")
        if number % 9 == 0:
            seen |= reader.news()
        sizes.append(len(list((tmp_path / "purges").iterdir())))
    assert max(sizes) <= 51
    assert len(reader._known) <= 51 + 9
    assert seen | reader.news() == {digest(f"{number}.py") for number in range(500)}
    assert not writer.news()
