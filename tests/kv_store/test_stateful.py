"""Random use of the store, with everything checked after every operation against a list of what was inserted."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from inference.engine.sessions import session_key
from kv_store.disk_folders import INDEX_NAME
from kv_store.interface import SessionKey
from kv_store.page_tree import Page, common_prefix_length
from kv_store.store import PageMatch
from tests.kv_store.integrity import check_integrity

DEVICE, HOST, DISK = 96, 64, 128

SESSIONS = tuple(map(session_key, ("one/first.py", "two/first.py", "one/second.py", "one/third.py", "two/fourth.py")))
sessions = st.sampled_from(SESSIONS)
places = st.integers(0, 1000)
tails = st.lists(st.integers(0, 1), max_size=40)


@dataclass
class Handle:
    match: PageMatch
    token_ids: tuple[int, ...]
    promised: int


class StoreMachine(RuleBasedStateMachine):
    """Files stay as they were written: what a match or a pin promised is kept."""

    keeps_promises = True

    def __init__(self, kv, make_store, root: Path) -> None:
        super().__init__()
        self.kv = kv
        self.open = lambda: make_store(DEVICE, HOST, DISK, root=root)
        self.folder = root
        self.store = self.open()
        self.inserted: dict[SessionKey, list[tuple[int, ...]]] = {}
        self.pinned: dict[SessionKey, tuple[tuple[int, ...], int]] = {}
        self.handles: list[Handle] = []
        self.indexed: set[tuple[bytes, int]] = set()

    def teardown(self) -> None:
        self.store.close()

    # -- what may be done ----------------------------------------------------------------------------------------------

    @rule(session=sessions, place=places, cut=places, tail=tails)
    def insert(self, session: SessionKey, place: int, cut: int, tail: list[int]) -> None:
        token_ids = self.prompt(place, cut, tail)
        before = self.resident(token_ids)
        grown = self.store.insert_prefix(token_ids, self.kv.workspace(token_ids), session)
        self.inserted.setdefault(session, []).append(token_ids)
        after = self.resident(token_ids)
        assert after == before + grown
        if not self.handles and not self.pinned and len(token_ids) + 16 <= DEVICE:
            assert after == len(token_ids)
        if session in self.pinned:
            self.pinned[session] = token_ids, after

    @rule(place=places, cut=places, tail=tails)
    def match(self, place: int, cut: int, tail: list[int]) -> None:
        token_ids = self.prompt(place, cut, tail)
        match = self.store.match_prefix(token_ids)
        self.handles.append(Handle(match, token_ids, match.length))

    @precondition(lambda self: self.handles)
    @rule(which=places, start=places)
    def load(self, which: int, start: int) -> None:
        handle = self.handles[which % len(self.handles)]
        start %= handle.match.length + 1
        workspace = self.kv.workspace(handle.token_ids[:start])
        loaded = handle.match.load(workspace, start)
        assert loaded >= (max(start, handle.promised) if self.keeps_promises else start)
        assert self.kv.held(workspace, handle.token_ids) == [place < loaded for place in range(len(handle.token_ids))]

    @precondition(lambda self: self.handles)
    @rule(which=places)
    def release(self, which: int) -> None:
        self.handles.pop(which % len(self.handles)).match.release()

    @rule(session=sessions)
    def pin(self, session: SessionKey) -> None:
        self.store.pin(session)
        if session not in self.pinned:
            path = self.store._tree.last_path(session)
            token_ids = tuple(itertools.chain.from_iterable(page.token_ids for page in path))
            self.pinned[session] = token_ids, len(token_ids)

    @rule(session=sessions)
    def unpin(self, session: SessionKey) -> None:
        self.store.unpin(session)
        self.pinned.pop(session, None)

    @rule(session=sessions)
    def purge(self, session: SessionKey) -> None:
        document = session.document
        self.store.purge(document)
        for other in [other for other in SESSIONS if other.document == document]:
            self.inserted.pop(other, None)
            self.pinned.pop(other, None)
        self.forget_promises()
        assert not any(document.encode() in path.read_bytes() for path in self.folder.rglob(f"{INDEX_NAME}*"))

    @rule(all_of_it=st.booleans())
    def save(self, all_of_it: bool) -> None:
        self.store.save(None if all_of_it else 0)
        if all_of_it:
            self.indexed = self.on_disk()

    @rule(how=st.sampled_from(["saved", "closed", "killed"]))
    def restart(self, how: str) -> None:
        if how == "saved":
            self.store.save()
        found = self.indexed & self.on_disk() if how == "killed" else self.on_disk()
        if how == "killed":
            self.store._folder.close()
        else:
            self.store.close()
        self.store = self.open()
        self.indexed = self.on_disk()
        assert found <= self.indexed or not self.keeps_promises, "what was saved and is still there is found again"
        self.handles.clear()
        self.pinned.clear()

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def adds_up(self) -> None:
        check_integrity(self.store)
        device, host, _ = self.store.stats().tiers
        for tier in (device, host):
            assert tier.used_bytes == tier.tokens * self.kv.bytes_per_token <= tier.budget_bytes

    @invariant()
    def nothing_is_resident_that_was_not_inserted_or_was_purged(self) -> None:
        prompts = [token_ids for inserted in self.inserted.values() for token_ids in inserted]
        for page in self.store._tree.pages():
            token_ids = page.token_ids
            while page.parent.parent is not page.parent:
                page = page.parent
                token_ids = page.token_ids + token_ids
            assert any(prompt[: len(token_ids)] == token_ids for prompt in prompts), token_ids

    @invariant()
    def pins_keep_what_they_pin(self) -> None:
        for token_ids, promised in self.pinned.values():
            assert self.resident(token_ids) >= promised or not self.keeps_promises

    # -- help ----------------------------------------------------------------------------------------------------------

    def prompt(self, place: int, cut: int, tail: list[int]) -> tuple[int, ...]:
        """Something inserted before, cut, with another end: long common prefixes are likely."""
        prompts = [token_ids for inserted in self.inserted.values() for token_ids in inserted] or [()]
        base = prompts[place % len(prompts)]
        return (base[: cut % (len(base) + 1)] + tuple(tail))[:120]

    def resident(self, token_ids: tuple[int, ...]) -> int:
        _, length = self.store._tree.find_prefix(token_ids)  # unlike a match, this does not count as a use
        return length

    def on_disk(self) -> set[tuple[bytes, int]]:
        """Digests and files of the pages that are saved, as all of their ancestors are."""
        pages = [page for page in self.store._tree.pages() if 2 in page.copies]
        found: dict[Page, int] = {}
        for page in pages:  # parents first
            if page.parent.is_root or page.parent in found:
                found[page] = page.copies[2].number
        return {(page.digest, number) for page, number in found.items()}

    def forget_promises(self) -> None:
        for handle in self.handles:
            handle.promised = 0
        self.pinned = {session: (token_ids, 0) for session, (token_ids, _) in self.pinned.items()}


class DamagedFilesMachine(StoreMachine):
    """Files are damaged now and then: pages may go at any time, but what is loaded is still right."""

    keeps_promises = False

    @rule(which=places, how=st.sampled_from(["flip", "cut", "grow", "delete"]))
    def damage(self, which: int, how: str) -> None:
        files = sorted(self.folder.rglob("*.safetensors"))
        if not files:
            return
        path = files[which % len(files)]
        data = path.read_bytes()
        middle = len(data) // 2
        match how:
            case "flip":
                path.write_bytes(data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :])
            case "cut":
                path.write_bytes(data[:middle])
            case "grow":
                path.write_bytes(data + data)
            case "delete":
                path.unlink()


@pytest.mark.parametrize("machine", [StoreMachine, DamagedFilesMachine])
def test_everything_adds_up_whatever_is_done(
    machine: type[StoreMachine], kv, make_store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("kv_store.page_tree", "tests.kv_store.integrity"):
        monkeypatch.setattr(f"{module}.REMEMBERED_OWNERS", 2)
    monkeypatch.setattr("kv_store.persistence.BATCH_PAGES", 3)
    roots = (tmp_path / str(number) for number in itertools.count())
    run_state_machine_as_test(
        lambda: machine(kv, make_store, next(roots)),
        settings=settings(
            max_examples=40,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        ),
    )


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompts=st.lists(st.lists(st.integers(0, 1), max_size=50), max_size=12), asked=st.lists(st.integers(0, 1), max_size=60))
def test_with_room_for_all_a_match_is_the_longest_common_prefix(kv, make_store, prompts, asked) -> None:
    store = make_store(device=10_000)
    for number, prompt in enumerate(prompts):
        before = max((common_prefix_length(prompt, other) for other in prompts[:number]), default=0)
        assert store.insert_prefix(prompt, kv.workspace(prompt), session_key("a")) == len(prompt) - before
    with store.match_prefix(asked) as match:
        assert match.length == max((common_prefix_length(prompt, asked) for prompt in prompts), default=0)
    check_integrity(store)
