"""Models of the hub: their names, the local cache, and downloads from a hub on this machine."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from inference.checkpoints.checkpoint import find_checkpoint, find_local_checkpoint
from inference.checkpoints.hub import (
    WANTED_FILES,
    SeveralQuantizations,
    cached_snapshot,
    download,
    fetch_snapshot,
    hub_name,
    look_up,
    quantizations,
)
from inference.remote.connecting import open_tokenizer
from protocol.errors import BadModel
from tests.inference import tiny_gguf
from tests.inference.checkpoints.fake_hub import COMMIT, FakeHub
from tests.inference.gguf_files import write_gguf


@pytest.mark.parametrize(
    ("model", "is_called"),
    [
        ("Qwen/Qwen2.5-Coder-1.5B", "Qwen/Qwen2.5-Coder-1.5B"),
        ("a/b:q4_k_m", "a/b:Q4_K_M"),
        ("hf.co/a/b:Q8_0", "a/b:Q8_0"),
        ("https://huggingface.co/a/b", "a/b"),
        *((name, "None") for name in ("bundled", "./a", "../a", "/a/b", "a/b/c", "a/..", "a/b:", "ollama:a/b:1b")),
        *((name, "None") for name in ("a/" + "b" * 95, "a--b/c", "a..b/c", "a/b.git", "-a/b", "a/b-", "a/.b", "a/b c")),
        *((name, "None") for name in ("a", "\0/b", "")),
    ],
)
def test_hub_names(model: str, is_called: str) -> None:
    assert str(hub_name(model)) == is_called


def test_files_are_grouped_by_quantization() -> None:
    paths = [
        *("m-q8_0.gguf", "m-Q4_K_M-00002-of-00002.gguf", "m-Q4_K_M-00001-of-00002.gguf"),
        *("UD/m-UD-IQ2_XXS.gguf", "m.bf16.gguf", "coder.gguf", "mmproj-m-f16.gguf", "README.md"),
    ]
    found = quantizations(paths)
    assert set(found) == {"Q8_0", "Q4_K_M", "UD-IQ2_XXS", "BF16", "CODER"}
    assert found["Q4_K_M"] == ["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"]


def test_of_several_models_of_one_quantization_the_first_complete_one_counts() -> None:
    parts = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]
    assert quantizations([*parts, "m-Q8_0.gguf"]) == {"Q8_0": parts}
    assert quantizations([parts[0], "m-Q8_0.gguf"]) == {"Q8_0": ["m-Q8_0.gguf"]}
    assert quantizations(["a-Q8_0.gguf", "b-Q8_0.gguf"]) == {"Q8_0": ["a-Q8_0.gguf"]}
    assert quantizations(parts[1:]) == {"Q8_0": parts[1:]}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub, and downloads in pieces of 1,000 bytes."""
    with FakeHub().listening() as hub:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
        yield hub


@pytest.fixture
def gguf(hub: FakeHub, tmp_path: Path) -> bytes:
    """A file of the hub in two quantizations."""
    content = write_gguf(tmp_path / "made" / "m.gguf").read_bytes()
    hub.repositories["someone/m-GGUF"] = {"m-Q8_0.gguf": content + b"\0" * 32, "m-Q4_K_M.gguf": content, "README.md": b""}
    return content


def test_cached_model_needs_no_network(cache: Path, tiny_checkpoint: Path) -> None:
    snapshot = cache / "models--someone--tiny" / "snapshots" / COMMIT
    shutil.copytree(tiny_checkpoint, snapshot)
    reference = cache / "models--someone--tiny" / "refs" / "main"
    reference.parent.mkdir()
    reference.write_text(COMMIT)
    assert cached_snapshot("someone/tiny") == snapshot
    assert find_checkpoint("someone/tiny").name == "someone/tiny"
    (snapshot / "model.safetensors").unlink()  # as an interrupted download leaves it
    assert find_local_checkpoint("someone/tiny") is None


def test_model_that_is_neither_cached_nor_reachable(cache: Path) -> None:
    assert find_local_checkpoint("someone/tiny") is None
    with pytest.raises(BadModel, match="someone/tiny is not in the local cache and could not be fetched: HF_HUB_OFF"):
        fetch_snapshot("someone/tiny")


def test_a_folder_is_downloaded_with_its_progress_and_found_again(hub: FakeHub, tiny_checkpoint: Path) -> None:
    files = {path.name: path.read_bytes() for path in tiny_checkpoint.iterdir()}
    hub.repositories["someone/tiny"] = {**files, "pytorch_model.bin": b"not wanted", "README.md": b"neither"}
    told: list[tuple[str, float | None]] = []
    folder = fetch_snapshot("someone/tiny", lambda what, share: told.append((what, share)))
    assert {path.name for path in folder.iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}
    assert {what for what, _ in told} == {"fetching someone/tiny"}
    shares = [share for _, share in told if share is not None]
    assert shares == sorted(shares)
    assert (len(set(shares)) > 10, shares[-1]) == (True, 1.0)
    sent = len(hub.ranges)
    assert find_checkpoint("someone/tiny").path == folder
    assert len(hub.ranges) == sent


def test_one_quantization_is_downloaded_and_runs_by_its_name(hub: FakeHub, gguf: bytes) -> None:
    with pytest.raises(
        SeveralQuantizations, match=r"choose one of someone/m-GGUF:Q4_K_M \(0 MB\), someone/m-GGUF:Q8_0"
    ) as several:
        look_up("someone/m-GGUF", WANTED_FILES)
    assert several.value.sizes == {"someone/m-GGUF:Q4_K_M": len(gguf), "someone/m-GGUF:Q8_0": len(gguf) + 32}
    with pytest.raises(BadModel, match="someone/m-GGUF:Q5_0 is not on the hub: someone/m-GGUF:Q4_K_M, "):
        look_up("someone/m-GGUF:Q5_0", WANTED_FILES)
    assert look_up("someone/m-GGUF:q4_k_m", WANTED_FILES).licence == "apache-2.0"
    assert find_local_checkpoint("someone/m-GGUF:q4_k_m") is None
    path = fetch_snapshot("hf.co/someone/m-GGUF:q4_k_m")
    assert path.name == "m-Q4_K_M.gguf"
    assert cached_snapshot("someone/m-GGUF:Q4_K_M") == path == cached_snapshot("someone/m-GGUF")
    assert cached_snapshot("someone/m-GGUF:Q8_0") is None


def test_a_tokenizer_is_fetched_without_weights(hub: FakeHub, gguf: bytes, tiny_checkpoint: Path) -> None:
    with pytest.raises(BadModel, match=r"someone/m-GGUF has none of the files config\.json, tokenizer\.json"):
        open_tokenizer("someone/m-GGUF:Q4_K_M")
    hub.repositories["someone/m-GGUF"]["tokenizer.json"] = (tiny_checkpoint / "tokenizer.json").read_bytes()
    assert open_tokenizer("someone/m-GGUF:Q4_K_M").encode("def f():")
    assert not [name for name, _ in hub.ranges if name.endswith(".gguf")]


def test_a_tokenizer_is_that_of_the_gguf_file_in_the_cache(hub: FakeHub, tiny_checkpoint: Path, tmp_path: Path) -> None:
    whole = tiny_gguf.write_gguf(tmp_path / "whole.gguf", tiny_checkpoint).read_bytes()
    hub.repositories["someone/m-GGUF"] = {"m-Q4_K_M.gguf": whole}
    path = fetch_snapshot("someone/m-GGUF:Q4_K_M")
    assert open_tokenizer("someone/m-GGUF:Q4_K_M").encode("a") == open_tokenizer(str(path)).encode("a")


def test_a_stopped_download_goes_on_where_it_stopped(hub: FakeHub, gguf: bytes, cache: Path) -> None:
    def stop(done: int, _: int) -> None:
        if done > 2500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download("someone/m-GGUF:Q4_K_M", stop, WANTED_FILES)
    (part,) = cache.rglob("*.incomplete")
    assert part.stat().st_size == 2000
    path = fetch_snapshot("someone/m-GGUF:Q4_K_M")
    assert hub.ranges == [("m-Q4_K_M.gguf", ""), ("m-Q4_K_M.gguf", "bytes=2000-")]
    assert path.read_bytes() == gguf
    assert not list(cache.rglob("*.incomplete"))


def test_content_with_another_hash_is_refused_and_removed(hub: FakeHub, gguf: bytes, cache: Path) -> None:
    hub.damaged.add("m-Q4_K_M.gguf")
    with pytest.raises(BadModel, match=f"the hub names {hashlib.sha256(gguf).hexdigest()}. Download it again"):
        fetch_snapshot("someone/m-GGUF:Q4_K_M")
    assert not [path for path in cache.rglob("blobs/*") if path.stat().st_size]
    hub.damaged.clear()
    assert fetch_snapshot("someone/m-GGUF:Q4_K_M").read_bytes() == gguf


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        ((403, "GatedRepo"), "accept its licence: do so at https://huggingface.co/someone/m-GGUF"),
        ((404, "EntryNotFound"), "could not be fetched: .*404"),
        ((500, ""), "could not be fetched: .*500"),
    ],
)
def test_what_the_hub_refuses(hub: FakeHub, gguf: bytes, refusal: tuple[int, str], why: str) -> None:
    hub.refused["someone/m-GGUF"] = refusal
    with pytest.raises(BadModel, match=why):
        fetch_snapshot("someone/m-GGUF:Q4_K_M")


def test_names_that_the_hub_lacks_and_repositories_without_weights(hub: FakeHub) -> None:
    with pytest.raises(BadModel, match="has no model 'someone/secret', or it is private"):
        fetch_snapshot("someone/secret")
    hub.repositories["someone/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b""}
    with pytest.raises(BadModel, match="it has neither safetensors nor GGUF files"):
        fetch_snapshot("someone/pickled")


def test_a_disk_without_room(hub: FakeHub, gguf: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=len(gguf) - 1))
    with pytest.raises(BadModel, match=r"needs 0 MB on the disk of .*, and 0 MB are free: make room"):
        fetch_snapshot("someone/m-GGUF:Q4_K_M")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)

    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", fill)
    with pytest.raises(BadModel, match="the disk is full, and someone/m-GGUF:Q4_K_M incomplete"):
        fetch_snapshot("someone/m-GGUF:Q4_K_M")


def test_an_interrupted_connection_is_reported(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(BadModel, match="What has arrived is kept: try again"):
        fetch_snapshot("someone/m")


@pytest.mark.parametrize("request_known", [True, False])
def test_a_host_that_cannot_be_reached_is_named(
    hub: FakeHub, gguf: bytes, monkeypatch: pytest.MonkeyPatch, request_known: bool
) -> None:
    sent = httpx2.Request("GET", "https://files.example/m.gguf") if request_known else None

    def fail(*_: object, **__: object) -> None:
        raise httpx2.ConnectError("[Errno -2] Name or service not known", request=sent)

    monkeypatch.setattr("huggingface_hub.file_download.http_get", fail)
    host = "files.example" if request_known else "127.0.0.1:"  # the fake hub's
    with pytest.raises(BadModel, match=rf"could not be fetched: {host}\d* cannot be reached \(.*Name or service not known"):
        fetch_snapshot("someone/m-GGUF:Q4_K_M")
