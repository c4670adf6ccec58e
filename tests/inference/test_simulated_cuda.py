"""The simulated CUDA refuses what CUDA refuses, and shows what CUDA would silently get wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.inference.simulated_cuda import SimulatedCuda


@pytest.fixture
def cuda() -> Iterator[SimulatedCuda]:
    with SimulatedCuda(total_bytes=2**20) as simulated:
        yield simulated


@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_operators_over_several_devices_are_refused(cuda: SimulatedCuda, other: str) -> None:
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.ones(3, device="cuda:0") + torch.ones(3, device=other)


@pytest.mark.parametrize("read", [lambda x: x.tolist(), torch.Tensor.item, torch.Tensor.cpu, lambda _: torch.cuda.synchronize()])
def test_within_a_capture_the_host_gets_no_value(cuda: SimulatedCuda, read: object) -> None:
    x = torch.ones(1, device="cuda")
    with pytest.raises(RuntimeError, match="not permitted"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        read(x)  # type: ignore[operator]


def test_a_capture_computes_nothing_and_a_replay_leaves_only_what_it_copied_out(cuda: SimulatedCuda) -> None:
    x, out = torch.ones(2, device="cuda"), torch.zeros(2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = x + 1
        out.copy_(result)
    assert out.tolist() == [0.0, 0.0]
    x.fill_(4)
    graph.replay()
    assert out.tolist() == [5.0, 5.0]
    assert result.isnan().all().item()


def test_a_host_tensor_is_not_there_before_the_copy_to_it_was_waited_for(cuda: SimulatedCuda) -> None:
    x = torch.ones(2, device="cuda")
    copy = x.to("cpu", non_blocking=True)
    x.fill_(7)  # is ordered after the copy
    with pytest.raises(RuntimeError, match="before the copy"):
        copy + 1
    assert bool((copy.numpy() != 1).all())
    torch.cuda.synchronize()
    assert copy.tolist() == [1.0, 1.0]


def test_streams_have_to_wait_for_each_other(cuda: SimulatedCuda) -> None:
    stream = torch.cuda.Stream()
    x = torch.ones(2, device="cuda")
    with torch.cuda.stream(stream), pytest.raises(RuntimeError, match="without a wait"):
        x + 1
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        assert (x + 1).tolist() == [2.0, 2.0]
