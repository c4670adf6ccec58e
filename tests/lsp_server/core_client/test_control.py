"""What is told of a core's memory."""

import pytest

from lsp_server.core_client.control import freed
from protocol.messages import CoreMemory, TierMemory


def memory(host: int, disk: int) -> CoreMemory:
    tiers = tuple(TierMemory(name, 0, 0, tokens) for name, tokens in (("host", host), ("disk", disk)))
    return CoreMemory(300_000_000, tiers=tiers)


@pytest.mark.parametrize(("disk", "tokens"), [(False, 50), (True, 30)])
def test_what_is_saved_to_disk_leaves_the_memory_and_is_freed(disk: bool, tokens: int) -> None:
    assert freed(memory(50, 10), memory(0, 30), disk=disk).startswith(f"{tokens} resident tokens; ")
