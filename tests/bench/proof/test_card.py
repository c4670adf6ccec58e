"""What a card's memory is to those who measure it."""

from __future__ import annotations

import pytest
import torch
from proof.card import Card, simulated_card


def test_what_torch_keeps_beside_something_small_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    def segment(total: int, active: int, pool: tuple[int, int] = (0, 0), device: int = 1) -> dict[str, object]:
        return {"total_size": total, "active_size": active, "segment_pool_id": pool, "device": device}

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 9000))
    segments = [segment(400, 30), segment(80, 80), segment(70, 0, (0, 1)), segment(600, 1, device=0)]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    assert Card(torch.device("cuda:1"), 1).available_bytes() == 1370


def test_memory_is_taken_until_an_allocation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated_card(1) as card:
        monkeypatch.setattr(Card, "free_bytes", lambda _: 2**28)  # torch's allocator has as much again
        left, least = 10 * 2**20, 2**20
        ballast = card.take_all_but(left, least)
        assert len(ballast) < 40
        beyond = card.simulated.total_bytes - card.simulated.allocated() - left
        assert 0 <= beyond < least
        torch.empty(left, dtype=torch.uint8, device=card.device)
