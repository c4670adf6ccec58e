"""What a core that is killed, or told to end with little time, leaves on disk for the next one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.sync.client import connect

from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from kv_store.disk import PageFolder, SnapshotFiles
from kv_store.interface import DryWorkspace
from kv_store.page_snapshots import SnapshotTier
from kv_store.snapshots import Snapshots, StateSnapshot
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from protocol.messages import CompletionRequest, Prompt
from protocol.rendezvous import read_or_make_token
from protocol.wire import Complete, Completed, StatusChanged, decode_core, encode
from tests.inference.core.test_process import wait_for_address

PATIENCE_S = 100.0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")


class BlankCodec:
    """Saves pages of a workspace without KV."""

    bytes_per_token = 4

    def encode(self, payload: object, count: int) -> bytes:
        return bytes(self.bytes_per_token * count)

    def decode(self, data: bytes, count: int) -> object:
        return None


class BlankStates:
    """Saves snapshots of recurrent layers without tensors."""

    overhead = 4

    def encode(self, payload: object) -> bytes:
        return bytes(self.overhead)

    def decode(self, data: bytes) -> StateSnapshot:
        return StateSnapshot(None, 0)


def open_store(folder: Path) -> PagedStore:
    files = PageFolder(folder, "model", BlankCodec(), min_free_bytes=0)
    states = [
        SnapshotTier("snapshots", 2**10, MemoryStorage()),
        SnapshotTier("snapshots on disk", 2**10, SnapshotFiles(files, BlankStates())),
    ]
    tiers = [Tier("memory", 2**20, MemoryStorage()), Tier("disk", 2**20, files)]
    return PagedStore(tiers, BlankCodec.bytes_per_token, states)


def workspace(*positions: int) -> DryWorkspace:
    snapshots = Snapshots(2**10)
    for position in positions:
        snapshots.put(position, StateSnapshot(None, 0))
    return DryWorkspace(BlankCodec.bytes_per_token, snapshots)


def prompt(number: int) -> list[int]:
    return random.Random(number).choices(range(100), k=100)


def save_for_ever(folder: Path) -> None:
    """Insert one prompt after another, print which is saved, and forget one now and then."""
    store = open_store(folder)
    number = 0
    while True:
        store.insert_prefix(prompt(number), workspace(100), f"run/{number}.py")
        while not store.save(0.0):
            pass
        if number % 5 == 4:
            store.purge(f"*/{number - 2}.py")
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1


@pytest.mark.parametrize("lines", [1, 40])
def test_a_process_that_is_killed_while_it_saves_leaves_all_that_it_had_saved(lines: int, tmp_path: Path) -> None:
    code = "import sys, pathlib; from tests.inference import test_crash as it; it.save_for_ever(pathlib.Path(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        last = int([*told, *process.stdout.read().splitlines()][-1])
    store = open_store(tmp_path)
    store.check_integrity()
    for number in range(last + 1):
        if number % 5 != 2 or number + 2 > last + 1:
            assert resident(store, number) == 100, number
        elif number + 2 <= last:
            assert resident(store, number) < 16, "it was purged"
    store.close()


def resident(store: PagedStore, number: int) -> int:
    """How many tokens are resident, with the state behind them."""
    with store.match_prefix(prompt(number)) as match:
        assert match.length < 16 or match.load(workspace()) == match.length
        return match.length


CORE = """
import sys, time
from pathlib import Path
import inference.core.scheduler, kv_store.workspace
from inference.core.engine_holder import EngineHolder
from inference.loading.options import EngineOptions
from inference.core.process import ServeOptions, serve

model, folder, rest_s, page_s = sys.argv[1:]
inference.core.scheduler._LONG_REST_S = float(rest_s)
encode, save = kv_store.workspace.TensorCodec.encode, EngineHolder.save

def encode_slowly(*arguments):
    time.sleep(float(page_s))
    return encode(*arguments)

def save_and_tell(holder, seconds, **options):
    is_over = save(holder, seconds, **options)
    print("on disk:", holder.engine().stats().tiers[-1].tokens, flush=True)
    return is_over

kv_store.workspace.TensorCodec.encode, EngineHolder.save = encode_slowly, save_and_tell
engine = EngineOptions(model, context_tokens=512, threads=1, slots=2, cache_folder=Path(folder) / "kv")
assert serve(ServeOptions(engine, runtime_dir=Path(folder)))
"""
PROMPTS = 5


def request(number: int) -> CompletionRequest:
    text = "".join(f"value_{number}_{line} = {line}\n" for line in range(12))
    return CompletionRequest(f"editor/{number}.py", Prompt(text, "\n", "x = "), max_tokens=1)


class Core:
    """A core's process that has answered for PROMPTS documents."""

    def __init__(self, model: Path, folder: Path, rest_s: float, page_s: float) -> None:
        arguments = [sys.executable, "-c", CORE, str(model), str(folder), str(rest_s), str(page_s)]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.tokens = 0
        address = wait_for_address(self.process, model, folder)
        bearer = {"Authorization": f"Bearer {read_or_make_token(folder)}"}
        with connect(address.url, additional_headers=bearer) as websocket:
            for number in range(PROMPTS):
                websocket.send(encode(Complete(number, request(number))))
                while isinstance(message := decode_core(str(websocket.recv(PATIENCE_S))), StatusChanged):
                    pass
                assert isinstance(message, Completed)
                self.tokens += message.completion.usage.prompt_tokens

    def wait_until_all_is_on_disk(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if int(line.removeprefix("on disk:")) >= self.tokens:
                return
        raise AssertionError("the core closed the connection")

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """The exit code and the log."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, log


def recomputed(model: Path, folder: Path) -> list[int]:
    """What the next process has to compute of each prompt, the newest first."""
    engine = load_engine(EngineOptions(str(model), context_tokens=512, threads=1, slots=2, cache_folder=folder / "kv"))
    assert engine.stats().refused == ()
    usages = [engine.complete(request(number)).usage for number in reversed(range(PROMPTS))]
    engine.check_integrity()
    engine.close()
    return [usage.recomputed_tokens for usage in usages]


def test_a_core_that_is_killed_at_rest_has_saved_everything(tiny_checkpoint: Path, tmp_path: Path) -> None:
    core = Core(tiny_checkpoint, tmp_path, rest_s=0.05, page_s=0.0)
    core.wait_until_all_is_on_disk()
    core.end(signal.SIGKILL)
    assert recomputed(tiny_checkpoint, tmp_path) == [1] * PROMPTS


def test_a_core_that_has_too_little_time_to_end_saves_the_newest(tiny_checkpoint: Path, tmp_path: Path) -> None:
    core = Core(tiny_checkpoint, tmp_path, rest_s=1000.0, page_s=0.08)
    code, log = core.end(signal.SIGTERM)
    assert code == 0, log
    assert "Traceback" not in log
    assert "FATAL" not in log
    assert "the deadline passed" in log
    newest, *others = recomputed(tiny_checkpoint, tmp_path)
    assert newest == 1
    assert others == sorted(others)
    assert others[-1] > 1, "there was time for all of it"
