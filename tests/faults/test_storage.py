"""Attacks on saved KV: full, read-only, removed and slow disks, kills, a clock set back, and very many sessions."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from msgspec import structs

from inference.engine.engine import Engine
from inference.engine.sessions import session_key as key
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from kv_store.disk import PageFolder
from kv_store.store import PagedStore
from kv_store.tiers import Tier
from kv_store.workspace import TensorCodec, TensorStorage
from protocol.messages import CompletionRequest, Prompt
from tests.faults.attacked import report
from tests.inference.tiny import write_checkpoint
from tests.kv_store.conftest import PrefixKV
from tests.kv_store.integrity import check_integrity

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

KV = PrefixKV()
KILLS = 50
DOCUMENTS = 8


def open_store(root: Path) -> PagedStore:
    folder = PageFolder(root, "model", TensorCodec(KV.shape), min_free_bytes=0)
    return PagedStore([Tier("device", 2**20, TensorStorage("cpu")), Tier("disk", 2**24, folder)], KV.bytes_per_token)


def insert(store: PagedStore, token_ids: tuple[int, ...], session: str) -> None:
    store.insert_prefix(token_ids, KV.workspace(token_ids), key(session))


def loadable(store: PagedStore, token_ids: tuple[int, ...]) -> int:
    """The number of tokens that can be loaded; all of them have the KV that they must have."""
    workspace = KV.workspace()
    with store.match_prefix(token_ids) as match:
        loaded = match.load(workspace)
    assert KV.held(workspace, token_ids)[:loaded] == [True] * loaded
    return loaded


def prompt(number: int) -> tuple[int, ...]:
    return tuple(random.Random(number).choices(range(1000), k=100))


def save_for_ever(root: Path, first: int, told: Connection) -> None:
    """Insert one prompt after another, save in steps, and tell what is saved."""
    store = open_store(root)
    for number in range(first, first + 10_000):
        insert(store, prompt(number), f"run/{number}.py")
        while not store.save(0.0):
            pass
        told.send(number)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_whenever_it_is_killed_what_was_saved_is_right_and_there(tmp_path: Path) -> None:
    rng, first, saved = random.Random(1), 0, 0
    for _ in range(KILLS):
        ours, theirs = get_context("fork").Pipe(duplex=False)
        process = get_context("fork").Process(target=save_for_ever, args=(tmp_path, first, theirs))
        process.start()
        theirs.close()
        numbers = [ours.recv()]
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.join()
        while ours.poll():
            try:
                numbers.append(ours.recv())
            except EOFError:
                break
        store = open_store(tmp_path)
        check_integrity(store)
        assert store.stats().refused == ()
        assert [loadable(store, prompt(number)) for number in numbers] == [100] * len(numbers)
        assert loadable(store, prompt(max(numbers) + 1)) in range(101)  # right, as far as it is there
        store.close()
        first, saved = max(numbers) + 2, saved + len(numbers)
    report(f"{KILLS} kills while saving: prompts lost or wrong", "0 of those saved", f"0 of {saved}")


@contextmanager
def full(_: Path) -> Iterator[None]:
    """As on a full disk, every write fails beyond some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    if os.geteuid():
        folder.chmod(0o500)
    elif subprocess.run(["mount", "--bind", "-o", "ro", folder, folder], capture_output=True, check=False).returncode:
        pytest.skip("root can write everywhere, and may not mount")
    try:
        yield
    finally:
        if os.geteuid():
            folder.chmod(0o700)
        else:
            subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def removed(folder: Path) -> Iterator[None]:
    shutil.rmtree(folder)
    yield


@contextmanager
def set_back(folder: Path) -> Iterator[None]:
    """The clock: the files are of a time to come, as seen from then on."""
    for file in folder.rglob("*"):
        os.utime(file, (time.time() + 10**8,) * 2)
    yield


FAULTS: dict[str, Callable[[Path], AbstractContextManager[None]]] = {
    "full": full,
    "read-only": read_only,
    "removed": removed,
    "of a time to come": set_back,
}


def ask(number: int, typed: str) -> CompletionRequest:
    text = "".join(f"value_{number}_{line} = {line}\n" for line in range(10))
    return CompletionRequest(f"editor/{number}.py", Prompt(text, "\n", f"x{typed} = "), max_tokens=4)


@pytest.mark.parametrize("fault", FAULTS)
def test_texts_stay_right_whatever_becomes_of_the_disk(fault: str, tmp_path: Path) -> None:
    checkpoint, folder = write_checkpoint(tmp_path / "model"), tmp_path / "kv"
    options = EngineOptions(str(checkpoint), dtype="float32", context_tokens=512, threads=1, slots=2)
    cold = load_engine(options)
    kept = replace(options, store_budget_bytes=2**16, cache_folder=folder, cache_budget_bytes=2**24)

    def right(engine: Engine, typed: str) -> int:
        requests = [ask(number, typed) for number in range(DOCUMENTS)]
        expected = [cold.complete(structs.replace(request, reuse=False)).text for request in requests]
        return sum(engine.complete(request).text == text for request, text in zip(requests, expected, strict=True))

    engine, found = load_engine(kept), []
    found.append(right(engine, ""))
    engine.save(None)
    with FAULTS[fault](folder):
        found.append(right(engine, "y"))
        engine.save(1.0)
        found.append(right(engine, "yz"))
    engine.save(1.0)
    found.append(right(engine, "yzz"))
    engine.close()
    again = load_engine(kept)
    found.append(right(again, "yzzz"))
    again.close()
    report(f"the disk is {fault}: right texts", f"{DOCUMENTS} of {DOCUMENTS} each time", " ".join(map(str, found)))
    assert found == [DOCUMENTS] * 5


def test_a_slow_disk_delays_a_request_by_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, encode = list[int](), TensorCodec.encode

    def encode_slowly(codec: TensorCodec, *arguments: object) -> object:
        time.sleep(0.03)
        encoded.append(1)
        return encode(codec, *arguments)  # type: ignore[arg-type]

    store = open_store(tmp_path)
    for number in range(4):
        insert(store, prompt(number), f"run/{number}.py")
    monkeypatch.setattr(TensorCodec, "encode", encode_slowly)
    steps = list[int]()
    is_over = False
    while not is_over:
        before = len(encoded)
        is_over = store.save(0.02)
        steps.append(len(encoded) - before)
    store.close()
    report("a disk that takes 30 ms a page: pages in a saving step of 20 ms", "1", f"{max(steps)}")
    assert max(steps) == 1
    assert sum(steps) >= 4 * 6
