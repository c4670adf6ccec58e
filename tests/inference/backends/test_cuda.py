"""The GPU path, whole: on a simulated CUDA, or on a real one with `make test-gpu`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from inference.backends.cuda import find_device, give_memory_back
from inference.backends.model import Chunk, Draw
from inference.backends.sampling import BEST, choose
from inference.core.engine_holder import EngineHolder
from inference.core.scheduler import Scheduler
from inference.engine.engine import Engine
from inference.engine.request import Request
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from kv_store.interface import DryWorkspace
from kv_store.workspace import HostStorage
from protocol.errors import BadInput, DeviceLost
from protocol.messages import Completion, CompletionRequest, Prompt, Sampling, StopRule
from tests.inference.requests import begin
from tests.inference.simulated_cuda import Operators, SimulatedCuda
from tests.kv_store.integrity import check_integrity, check_storage

TEXT = "def size_of(path):\n    return os.stat(path).st_size\n\n\n"
WAIT_S = 60.0


def ask(increment: str = "", session: str = "a.py", text: str = TEXT, max_tokens: int = 6) -> CompletionRequest:
    return CompletionRequest(session, Prompt(text, "\n", increment), max_tokens, StopRule(indent=0))


@pytest.fixture
def options(tiny_checkpoint: Path) -> EngineOptions:
    return EngineOptions(str(tiny_checkpoint), device="cuda", dtype="float32", threads=1, context_tokens=256, prefill_chunk=32)


@pytest.fixture
def expected(options: EngineOptions) -> Callable[[CompletionRequest], str]:
    """What a CPU says."""
    engine = load_engine(replace(options, device="cpu", kernel=False))
    return lambda request: engine.complete(request).text


@pytest.mark.parametrize(("setting", "name"), [("auto", "cuda:0"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cpu", "cpu")])
def test_a_gpu_always_has_its_number(cuda: SimulatedCuda | None, setting: str, name: str) -> None:
    assert str(find_device(setting)) == name


@pytest.mark.parametrize("setting", ["gpu", "banana", "meta", "cuda:99", "mps", "cuda:x"])
def test_a_device_that_is_not_there_is_named(cuda: SimulatedCuda | None, setting: str) -> None:
    with pytest.raises(BadInput, match=f"device '{setting}'"):
        find_device(setting)


def test_the_current_gpu_is_the_one_without_a_number(simulated: SimulatedCuda) -> None:
    torch.cuda.set_device(1)
    assert str(find_device("cuda")) == "cuda:1"


@pytest.mark.parametrize("device", ["auto", "cuda:1"])
def test_a_session(
    cuda: SimulatedCuda | None, options: EngineOptions, expected: Callable[[CompletionRequest], str], device: str
) -> None:
    """Load, prefill, decode, record, replay, and close; the texts are the CPU's."""
    if device == "cuda:1" and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    engine = load_engine(replace(options, device=device))
    assert engine.info.device == ("cuda:1" if device == "cuda:1" else "cuda:0")
    recorded = 0 if cuda is None else cuda.captures
    for increment in ("    x", "    x ="):
        assert engine.complete(ask(increment)).text == expected(ask(increment))
    assert cuda is None or cuda.captures == recorded > 0  # nobody has to wait for a recording
    while engine.device.prepare():
        pass
    for increment in ("    x = s", "    x", "    y"):
        found = engine.complete(ask(increment))
        assert found.text == expected(ask(increment))
        assert found.usage.recomputed_tokens < 10
    assert cuda is None or cuda.replays > cuda.captures
    check_integrity(engine)
    engine.close()


def test_attention_gets_no_mask_where_flash_attention_can_be_used(simulated: SimulatedCuda, options: EngineOptions) -> None:
    engine = load_engine(replace(options, dtype="bfloat16", prefill_chunk=256, speculation=False))
    simulated.masks.clear()  # of the first graphs
    engine.complete(ask(text=TEXT * 3))
    assert simulated.masks
    assert not any(simulated.masks)


def test_no_attention_may_be_computed_by_cudnn(simulated: SimulatedCuda, options: EngineOptions) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)  # as torch begins; simulated_cuda restores it
    engine = load_engine(replace(options, dtype="bfloat16"))
    engine.complete(ask("    x"))
    for _ in range(3):
        engine.device.prepare()
    assert len(simulated.may_use_cudnn) > 10
    assert not any(simulated.may_use_cudnn)


@pytest.mark.parametrize("has_public_name", [True, False])
def test_pinned_memory_is_given_back_with_every_torch(
    simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, *, has_public_name: bool
) -> None:
    called: list[str] = []
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: called.append("internal"), raising=False)
    if has_public_name:
        monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: called.append("public"))
    else:
        monkeypatch.delattr(torch.accelerator, "empty_host_cache")
    give_memory_back()
    assert called == ["public" if has_public_name else "internal"]


def test_prefetching_waits_for_each_chunk_and_computes_no_logits(
    simulated: SimulatedCuda, options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def logits(*_: object) -> None:
        raise AssertionError("the head runs for nobody")

    engine = load_engine(options)
    monkeypatch.setattr("inference.backends.llama.decoder.Decoder.logits", logits)
    before = simulated.synchronizations
    usage = engine.complete(ask(max_tokens=0, text=TEXT * 4)).usage
    assert usage.forwards > 2
    assert simulated.synchronizations - before == usage.forwards


def test_what_leaves_the_gpu_comes_back(
    cuda: SimulatedCuda | None, options: EngineOptions, expected: Callable[[CompletionRequest], str]
) -> None:
    store_bytes = 40 * 2 * 2 * 2 * 12 * 4  # 40 tokens
    engine = load_engine(replace(options, store_budget_bytes=store_bytes, slots=1, speculation=False))
    first, other = (ask("    x", text=TEXT * 3), ask("y", session="b.py", text="import sys\nclass Thing:\n    pass\n" * 3))
    assert engine.complete(first).text == expected(first)
    engine.complete(other)
    host = next(tier for tier in engine.stats().tiers if tier.name == "host")
    assert host.pages > 1
    again = engine.complete(first)
    assert again.text == expected(first)
    assert again.usage.recomputed_tokens == 1
    check_integrity(engine)


PAGE_BYTES = 2 * 16 * 4


def pages_of(count: int, tokens: int = 16) -> list[torch.Tensor]:
    return [torch.full((2, tokens), float(number), device="cuda:0") for number in range(count)]


def test_pages_leave_the_gpu_without_a_wait_and_the_first_read_waits_for_them_alone(cuda: SimulatedCuda | None) -> None:
    storage = HostStorage(PAGE_BYTES, 8 * PAGE_BYTES)
    assert storage.prepare()  # pinned at rest
    assert not storage.prepare()
    waits = 0 if cuda is None else cuda.synchronizations
    pages = pages_of(4)
    stored = [storage.put(page, 16) for page in pages]
    assert storage.prepare()  # starts the copies
    for page in pages:
        page.fill_(-1)  # the memory is another's as soon as the page is gone
    assert cuda is None or (cuda.synchronizations, cuda.pinned_allocations) == (waits, 1)
    kept = [storage.get(reference) for reference in stored]
    assert [int(page.numpy()[0, 0]) for page in kept if isinstance(page, torch.Tensor)] == [0, 1, 2, 3]
    assert cuda is None or (cuda.synchronizations, cuda.events) == (waits + 1, 1)
    check_storage(storage, stored)


def test_pinned_memory_stays_within_its_budget_and_is_used_again(cuda: SimulatedCuda | None) -> None:
    budget = 3 * PAGE_BYTES
    storage = HostStorage(PAGE_BYTES, budget)
    stored = [storage.put(page, 16) for page in pages_of(5)]  # two have no room there
    assert storage.pinned_bytes == budget
    for page in stored[:2]:
        storage.remove(page)
    stored = [*stored[2:], *(storage.put(page, 5) for page in pages_of(2, tokens=5))]
    kept = [storage.get(page) for page in stored]
    assert [float(page.numpy().mean()) for page in kept if isinstance(page, torch.Tensor)] == [2, 3, 4, 0, 1]
    assert [page.shape[1] for page in kept if isinstance(page, torch.Tensor)] == [16, 16, 16, 5, 5]
    assert storage.pinned_bytes == budget
    check_storage(storage, stored)
    with pytest.raises(AssertionError, match="1 places in pinned memory belong to no page"):
        check_storage(storage, stored[1:])


def copied(storage: HostStorage, pages: Collection[torch.Tensor]) -> list[float]:
    """What the pages hold after a copy to main memory."""
    kept = [storage.get(reference) for reference in [storage.put(page, page.shape[1]) for page in pages]]
    return [float(page.numpy().mean()) for page in kept if isinstance(page, torch.Tensor)]


def test_pages_side_by_side_leave_in_one_copy(simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = HostStorage(PAGE_BYTES, 16 * PAGE_BYTES)
    assert storage.prepare()
    pages = [*pages_of(6), torch.full((2, 5), 6.0, device="cuda:0"), *pages_of(2)]  # one of them is not full
    before = simulated.host_copies
    assert copied(storage, pages) == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    assert simulated.host_copies - before == 3
    monkeypatch.setattr("kv_store.workspace.COPIED_AT_ONCE", 2 * PAGE_BYTES)
    before = simulated.host_copies
    for page in pages_of(5):
        storage.put(page, 16)
    assert simulated.host_copies - before == 2  # and one page waits


def test_a_page_that_goes_before_its_copy_leaves_its_place(simulated: SimulatedCuda) -> None:
    storage = HostStorage(PAGE_BYTES, 4 * PAGE_BYTES)
    stored = [storage.put(page, 16) for page in pages_of(4)]
    storage.remove(stored.pop(1))
    (other,) = (storage.put(page, 16) for page in pages_of(1))
    assert [float(page.numpy().mean()) for page in map(storage.get, [*stored, other]) if isinstance(page, torch.Tensor)] == [
        0, 2, 3, 0,
    ]  # fmt: skip
    assert storage.pinned_bytes == 4 * PAGE_BYTES


def test_without_memory_to_gather_them_pages_leave_one_by_one(simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch, "cat", refuse)
    before = simulated.host_copies
    assert copied(HostStorage(PAGE_BYTES, 4 * PAGE_BYTES), pages_of(3)) == [0, 1, 2]
    assert simulated.host_copies - before == 3


def test_where_no_memory_can_be_pinned_pages_are_kept_all_the_same(
    simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = HostStorage(PAGE_BYTES, 8 * PAGE_BYTES)
    pages = pages_of(2)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", _fail)
        assert not storage.prepare()
    stored = [storage.get(storage.put(page, 16)) for page in pages]
    assert [int(page.numpy()[0, 0]) for page in stored if isinstance(page, torch.Tensor)] == [0, 1]
    assert len(caplog.records) == 1


def test_main_memory_bounds_what_is_pinned(
    simulated: SimulatedCuda, options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.loading.engine.HOST_SHARE", 2**20)
    engine = load_engine(options)
    host = next(tier for tier in engine.stats().tiers if tier.name == "host")
    assert host.budget_bytes == psutil.virtual_memory().total // 2**20 < options.host_budget_bytes


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_chunk_behind_a_prefix_needs_no_mask(simulated: SimulatedCuda, options: EngineOptions, dtype: str) -> None:
    engine = load_engine(replace(options, dtype=dtype, prefill_chunk=64))
    simulated.masks.clear()  # of the first graphs
    usage = engine.complete(ask(text=TEXT * 6, max_tokens=0)).usage
    assert usage.forwards > 2
    assert simulated.flashes >= 2  # one a layer of the second chunk, and of later ones
    assert not any(simulated.masks)


def test_a_drawn_token_takes_few_scores_from_the_gpu(cuda: SimulatedCuda | None) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(1, 30_000, generator=generator)
    there = logits.to("cuda:0")
    draws = [
        Draw(point, Sampling(1.0, top_p, top_k)) for point in (0.0, 0.3, 0.8) for top_p, top_k in ((1.0, 0), (0.5, 0), (1.0, 40))
    ]
    for how in (None, *draws):
        chunk = Chunk([1], 0, DryWorkspace(4), 1, None, how, 0 if how else 5)
        before = 0 if cuda is None else cuda.host_bytes
        (found,), (expected,) = choose(there, chunk), choose(logits, chunk)
        assert (found.token_id, [token_id for token_id, _ in found.top]) == (
            expected.token_id,
            [token_id for token_id, _ in expected.top],
        )
        assert found.logprob == pytest.approx(expected.logprob, abs=1e-9)
        assert cuda is None or cuda.host_bytes - before == 8 * (2 * BEST + 2)


@pytest.mark.parametrize(
    "how",
    [
        Draw(0.999999, Sampling(1.0)),
        Draw(0.9, Sampling(50.0)),
        Draw(0.99, Sampling(9.0, top_p=0.99)),
        Draw(0.999, Sampling(50.0, top_k=2 * BEST)),
    ],
)
def test_a_token_behind_the_highest_scores_is_drawn_from_all(cuda: SimulatedCuda | None, how: Draw) -> None:
    logits = torch.randn(1, 3000, generator=torch.Generator().manual_seed(2))
    logits[0, BEST // 2 : 2 * BEST] = logits.max()  # as many as cannot be told apart
    chunk = Chunk([1], 0, DryWorkspace(4), 1, None, how)
    assert choose(logits.to("cuda:0"), chunk)[0].token_id == choose(logits, chunk)[0].token_id


def test_what_was_resident_is_found_after_a_restart(cuda: SimulatedCuda | None, options: EngineOptions, tmp_path: Path) -> None:
    kept = replace(options, cache_folder=tmp_path, speculation=False)
    engine = load_engine(kept)
    usage = engine.complete(ask("    x")).usage
    engine.close()
    again = load_engine(kept)
    assert again.complete(ask("    x")).usage.recomputed_tokens == 1 < usage.recomputed_tokens
    again.close()


def test_unloading_gives_the_memory_back(simulated: SimulatedCuda, options: EngineOptions) -> None:
    simulated.total_bytes = 2**29
    roomy = replace(options, slots=2, context_tokens=512)
    holder = EngineHolder("tiny", lambda progress: load_engine(roomy, progress), lambda status: None)
    holder.engine().complete(ask())
    assert holder.prepare()
    assert simulated.free() < simulated.total_bytes
    holder.unload()
    assert simulated.allocated() == 0
    assert simulated.free() == simulated.total_bytes
    holder.engine().complete(ask())
    holder.unload()


def test_without_memory_for_a_second_workspace_sessions_share_the_first(
    simulated: SimulatedCuda, options: EngineOptions, caplog: pytest.LogCaptureFixture
) -> None:
    engine = load_engine(replace(options, slots=4, context_tokens=512, speculation=False))
    engine.complete(ask())
    simulated.total_bytes = simulated.allocated() + 180_000  # a workspace has 196,608
    for session in ("b.py", "c.py", "a.py"):
        assert engine.complete(ask(session=session)).finish_reason != "cancelled"
    assert engine.capacity == 1
    assert caplog.text.count("no memory for more than 1 workspaces") == 1


def test_a_request_that_finds_no_memory_for_its_workspace_goes_on_later(simulated: SimulatedCuda, options: EngineOptions) -> None:
    engine = load_engine(replace(options, slots=4, context_tokens=512, speculation=False))
    first = begin(engine, ask())
    simulated.total_bytes = simulated.allocated() + 180_000  # a workspace has 196,608
    second = begin(engine, ask(session="b.py"))
    assert second.completion().finish_reason == "cancelled"  # the scheduler puts it back in line
    assert engine.capacity == 1
    while not first.has_ended:
        engine.step()
    assert engine.complete(ask(session="b.py")).finish_reason != "cancelled"


@pytest.mark.parametrize(
    ("capability", "weights", "dtype"),
    [((7, 5), "auto", torch.float16), ((7, 5), "int8", torch.float32), ((8, 0), "int8", torch.bfloat16)],
)
def test_older_gpus_compute_in_what_they_have(
    simulated: SimulatedCuda, options: EngineOptions, capability: tuple[int, int], weights: str, dtype: torch.dtype
) -> None:
    simulated.capability = capability
    engine = load_engine(replace(options, dtype="auto", weights=weights))  # type: ignore[arg-type]
    assert engine._model.kv_shape.dtype == str(dtype).removeprefix("torch.")  # type: ignore[attr-defined]


# -- errors of the device ----------------------------------------------------------------------------------------------


def test_an_error_that_leaves_the_gpu_usable_is_one_requests_own(
    simulated: SimulatedCuda, options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_engine(options)
    with monkeypatch.context() as patch:
        patch.setattr(engine._model, "forward", _fail)
        with pytest.raises(torch.AcceleratorError):
            engine.complete(ask())
    assert engine.complete(ask()).finish_reason != "cancelled"


def test_a_lost_gpu_is_told_from_a_failed_request(simulated: SimulatedCuda, options: EngineOptions) -> None:
    engine = load_engine(options)
    begin(engine, ask())
    simulated.break_context()
    with pytest.raises(DeviceLost, match=r"cuda:0 fails every call since .*illegal memory access"):
        engine.step()
    with pytest.raises(DeviceLost):
        load_engine(options)  # this process cannot use it any more, however often it loads


def test_a_lost_gpu_ends_the_core_and_every_request_is_answered(simulated: SimulatedCuda, options: EngineOptions) -> None:
    statuses: list[str] = []

    def load(progress: object) -> Engine:
        Operators(simulated).__enter__()  # on the model's thread
        return load_engine(options)

    holder = EngineHolder("tiny", load, lambda status: statuses.append(status.state))
    scheduler = Scheduler(holder)
    assert isinstance(_answer(scheduler, ask()), Completion)
    simulated.break_context()
    assert isinstance(_answer(scheduler, ask("    x", session="b.py")), DeviceLost)
    scheduler._thread.join(WAIT_S)
    assert isinstance(scheduler.lost, DeviceLost)
    assert statuses[-1] == "failed"
    assert not holder.is_loaded
    scheduler.close()


def _answer(scheduler: Scheduler, request: CompletionRequest) -> object:
    done = threading.Event()
    asked = Request(request, changed=lambda each: done.set() if each.has_ended else None)
    scheduler.submit(asked)
    assert done.wait(WAIT_S)
    return asked.outcome


def _fail(*_: object, **__: object) -> None:
    raise torch.AcceleratorError("CUDA error: invalid argument")
