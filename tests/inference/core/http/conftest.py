"""A core of a tiny model, as the HTTP APIs' tests ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from inference.loading.options import EngineOptions
from tests.inference.serving import BEARER, client_of
from tests.inference.tiny import write_checkpoint


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("tiny"), max_position_embeddings=2048)
    with client_of(EngineOptions(str(checkpoint), context_tokens=2048, threads=1, slots=4)) as client:
        client.headers.update(BEARER)
        yield client
