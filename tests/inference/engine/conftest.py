from __future__ import annotations

import pytest

from inference.engine.completing import SharedState
from inference.engine.partial_words import PartialWordCache
from inference.engine.short_prompts import PrefillSpeed
from inference.engine.slots import Slots
from inference.text.tokenization import TextTokenizer
from kv_store.interface import DryWorkspace
from tests.inference.engine.driving import CONTEXT
from tests.inference.slots import store_without_room


@pytest.fixture
def shared(tiny_tokenizer: TextTokenizer) -> SharedState:
    """What the engine gives every request, with one workspace that holds no KV."""
    slots = Slots(1, 1, lambda: DryWorkspace(bytes_per_token=4), store_without_room(), context_tokens=64)
    return SharedState(
        tiny_tokenizer, None, PartialWordCache(tiny_tokenizer.bytes_of), slots, None, CONTEXT, PrefillSpeed(assumed_fast=True)
    )
