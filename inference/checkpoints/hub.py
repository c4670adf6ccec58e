"""The Hugging Face hub: names of models, the local cache, and downloads that go on where they stopped.

huggingface_hub finds the files, fetches them and lays them in its cache. Its own downloads begin anew when their
process ends, so large files are fetched here by its `http_get` into a partial file, checked by their SHA-256, and put
where it looks for them.
"""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from inference.checkpoints.weights import find_weights
from protocol.errors import BadModel
from protocol.messages import megabytes

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.hf_api import ModelInfo


_PART = r"[A-Za-z0-9][\w.-]*"
_MOST_CHARS = 96  # of OWNER/NAME, by the hub's rules, as is what no name has
_NOT_ON_THE_HUB = re.compile(r"--|\.\.|(?:^|/)[-.]|[-.](?:/|$)|\.git$")
_NAME = re.compile(rf"(?:(?:https://)?(?:hf\.co|huggingface\.co)/)?({_PART}/{_PART})(?::({_PART}))?", re.ASCII)
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_PROJECTOR = "mmproj"  # llama.cpp's name for the part of a model that reads images
# As llama.cpp and the tools that quantize for it name files: model-Q4_K_M.gguf, model.i1-IQ4_XS.gguf, model-f16.gguf.
_QUANTIZATION = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|FP16|F32))$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository, and the quantization of one of its GGUF files in upper case; empty if none is named."""

    repository: str
    quantization: str = ""

    def __str__(self) -> str:
        return f"{self.repository}:{self.quantization}" if self.quantization else self.repository


class SeveralQuantizations(BadModel):
    """A name without a quantization, of a repository that has several; `sizes` are their bytes by their names."""

    def __init__(self, repository: str, sizes: Mapping[str, int]) -> None:
        self.sizes = {f"{repository}:{quantization}": size for quantization, size in sizes.items()}
        named = ", ".join(f"{name} ({megabytes(size)})" for name, size in self.sizes.items())
        super().__init__(f"{repository} has several quantizations: choose one of {named}")


def hub_name(model: str) -> HubName | None:
    """OWNER/NAME or OWNER/NAME:QUANTIZATION, also behind hf.co/; None for anything else."""
    match = _NAME.fullmatch(model)
    if match is None or len(repository := match.group(1)) > _MOST_CHARS or _NOT_ON_THE_HUB.search(repository):
        return None
    return HubName(repository, (match.group(2) or "").upper())


def quantizations(paths: Iterable[str]) -> dict[str, list[str]]:
    """The GGUF files of models by quantization, in order; several are the parts of one. Vision projectors are none.

    Of several models of one quantization, such as a file that is there both whole and in parts, it is the first that
    is complete.
    """
    models: dict[str, dict[tuple[str, str], list[str]]] = {}
    for path in sorted(paths):
        file = PurePosixPath(path)
        if file.suffix == ".gguf" and _PROJECTOR not in file.name.lower():
            stem, split = _SPLIT.sub("", file.stem), _SPLIT.search(file.stem)
            match = _QUANTIZATION.search(stem)
            same = models.setdefault((match.group(1) if match else stem).upper(), {})
            same.setdefault((str(file.with_name(stem)), split.group(2) if split else ""), []).append(path)
    return {
        quantization: next(filter(is_complete, same.values()), next(iter(same.values()))) for quantization, same in models.items()
    }


def is_first_part(file: PurePath) -> bool:
    """Whether a GGUF file holds a model, or the first part of one: not a later part, and not a vision projector."""
    match = _SPLIT.search(file.stem)
    return (match is None or int(match.group(1)) == 1) and _PROJECTOR not in file.name.lower()


def is_complete(files: Sequence[str]) -> bool:
    """Whether these are all parts of a GGUF file."""
    match = _SPLIT.search(PurePosixPath(files[0]).stem)
    return len(files) == (int(match.group(2)) if match else 1)


def one_model(found: Mapping[str, list[str]], wanted: HubName, size: Callable[[str], int]) -> list[str]:
    """The files of the wanted quantization, or of the only one; `size` gives a file's bytes.

    BadModel, with those that there are, if it is none of them; SeveralQuantizations if none is named.
    """
    if wanted.quantization in found:
        return found[wanted.quantization]
    if wanted.quantization or not found:
        here = ", ".join(f"{wanted.repository}:{name}" for name in found) or "it has neither safetensors nor GGUF files"
        raise BadModel(f"{wanted} is not on the hub: {here}")
    if len(found) > 1:
        raise SeveralQuantizations(wanted.repository, {name: sum(map(size, paths)) for name, paths in found.items()})
    return next(iter(found.values()))


ReportBytes = Callable[[int, int], None]  # bytes that are here, and bytes of all files


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository; `sha256` is empty for small text files, which git has itself."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model that the hub has: the files to download, and what to know before."""

    name: HubName
    commit: str
    licence: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def look_up(name: str, patterns: Sequence[str]) -> HubModel:
    """The hub's files by this name: those of `patterns`, or for a repository without safetensors a GGUF file.

    BadModel, with the reason, if there is no such model; SeveralQuantizations if there are several.
    """
    from huggingface_hub import HfApi

    wanted = hub_name(name)
    if wanted is None:
        raise BadModel(f"{name!r} is no name on the Hugging Face hub: write OWNER/NAME or OWNER/NAME:QUANTIZATION")
    with _explained(wanted):
        info = HfApi().model_info(wanted.repository, files_metadata=True)
    files = {file.path: file for file in _files(info)}
    paths = [path for path in files if any(fnmatch(path, pattern) for pattern in patterns)]
    wants_weights = any(pattern.endswith(".safetensors") for pattern in patterns)
    has_weights = any(path.endswith(".safetensors") for path in paths)
    if wanted.quantization or (wants_weights and not has_weights):
        paths = one_model(quantizations(files), wanted, lambda path: files[path].size)
    if not paths:
        raise BadModel(f"{wanted} has none of the files {', '.join(patterns)}: name the model that it was made from")
    licence = str(getattr(info.card_data, "license_name", None) or getattr(info.card_data, "license", None) or "")
    return HubModel(wanted, str(info.sha), licence, tuple(files[path] for path in paths))


def download(name: str, report: ReportBytes, patterns: Sequence[str]) -> Path:
    """Download what the cache lacks; returns the model's folder, or its (first) GGUF file. Errors as `look_up`.

    Ending the process keeps what has arrived, and the next call goes on from there.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    model = look_up(name, patterns)
    cache = Path(HF_HUB_CACHE)
    blobs = cache / repo_folder_name(repo_id=model.name.repository, repo_type="model") / "blobs"
    with _explained(model.name):
        blobs.mkdir(parents=True, exist_ok=True)
        _check_room(model, blobs)
        before = 0
        for file in model.files:
            if file.sha256:
                _fetch(model, file, blobs, lambda done, before=before: report(before + done, model.size))  # type: ignore[misc]
            before += file.size
        paths = [file.path for file in model.files]
        folder = snapshot_download(model.name.repository, allow_patterns=paths, tqdm_class=_silent())
    report(model.size, model.size)
    return Path(folder) / paths[0] if paths[0].endswith(".gguf") else Path(folder)


def _files(info: ModelInfo) -> Iterator[HubFile]:
    for sibling in info.siblings or ():
        sha256 = sibling.lfs.sha256 if sibling.lfs is not None else ""
        yield HubFile(sibling.rfilename, sibling.size or 0, sha256)


def _check_room(model: HubModel, blobs: Path) -> None:
    """BadModel if the disk has no room for what is missing."""
    sizes = {file.sha256: file.size for file in model.files if not (blobs / file.sha256).is_file()}
    missing = sum(size - _size(_partial(blobs, sha256)) for sha256, size in sizes.items())
    free = shutil.disk_usage(blobs).free
    if missing > free:
        needs = f"{model.name} needs {megabytes(missing)} on the disk of {blobs}"
        raise BadModel(f"{needs}, and {megabytes(free)} are free: make room, or set HF_HOME to another disk")


def _fetch(model: HubModel, file: HubFile, blobs: Path, report: Callable[[int], None]) -> None:
    """Put the file's blob into the cache; BadModel if its content is not what the hub says."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    blob, part = blobs / file.sha256, _partial(blobs, file.sha256)
    if blob.is_file():
        report(file.size)
        return
    url = hf_hub_url(model.name.repository, file.path, revision=model.commit)
    with _alone(part, model.name):
        with part.open("ab", buffering=0) as target:  # unbuffered: a killed process loses nothing
            here = _size(part)
            counter = cast(Any, partial(_Counter, report))
            http_get(url, target, resume_size=here, headers=build_hf_headers(), expected_size=file.size, tqdm_class=counter)
        with part.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != file.sha256:
            part.unlink()
            raise BadModel(
                f"{file.path} of {model.name} was damaged on its way: its SHA-256 is {found}, and the hub names "
                f"{file.sha256}. Download it again"
            )
        part.replace(blob)
    report(file.size)


class _Counter:
    """The part of a progress bar that `http_get` uses."""

    def __init__(self, report: Callable[[int], None], initial: int = 0, **_: object) -> None:
        self._report = report
        self._done = initial
        report(initial)

    def update(self, count: int) -> None:
        self._done += count
        self._report(self._done)

    def __enter__(self) -> _Counter:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is drawn."""


def _partial(blobs: Path, sha256: str) -> Path:
    return blobs / f"{sha256}.midfill.incomplete"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextmanager
def _alone(part: Path, name: HubName) -> Iterator[None]:
    try:
        lock = FileLock(part.with_suffix(".lock"), timeout=0).acquire()
    except Timeout as error:
        raise BadModel(f"another process downloads {name}: wait for it, or stop it") from error
    with lock:
        yield


@contextmanager
def _explained(name: HubName) -> Iterator[None]:
    """Turn the errors of the network, the hub and the disk into BadModel, each with its remedy."""
    import httpx2
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        yield
    except GatedRepoError as error:
        raise BadModel(
            f"{name} requires you to accept its licence: do so at https://huggingface.co/{name.repository}, then log "
            "in with `hf auth login`, or set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise BadModel(
            f"the Hugging Face hub has no model {name.repository!r}, or it is private: log in with `hf auth login`, "
            "or set HF_TOKEN"
        ) from error
    except OfflineModeIsEnabled as error:
        raise BadModel(
            f"{name} is not in the local cache and could not be fetched: HF_HUB_OFFLINE forbids it. Unset it once, or "
            "choose a model of this machine"
        ) from error
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise BadModel(f"the disk is full, and {name} incomplete: make room, then try again") from error
        why = f"{_host_of(error)} cannot be reached ({error})" if isinstance(error, httpx2.TransportError) else error
        raise BadModel(
            f"{name} is not in the local cache and could not be fetched: {why}. What has arrived is kept: try again, "
            "or choose a model of this machine"
        ) from error


def _host_of(error: httpx2.TransportError) -> str:
    """The host that a failed request was sent to; the hub's if the error does not know its request."""
    from huggingface_hub.constants import ENDPOINT

    try:
        return error.request.url.host
    except RuntimeError:
        return urlsplit(ENDPOINT).netloc


def _silent() -> Any:
    """A class of progress bars that draw nothing."""
    from huggingface_hub.utils.tqdm import tqdm

    class Silent(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

    return Silent


ReportProgress = Callable[[str, float | None], None]  # current activity, and its share done (0..1) if known

TOKENIZER_FILES = ("config.json", "tokenizer.json")
WANTED_FILES = (*TOKENIZER_FILES, "model*.safetensors", "model.safetensors.index.json")


def is_hub_name(model: str) -> bool:
    """Whether `model` has the form OWNER/NAME or OWNER/NAME:QUANTIZATION."""
    return hub_name(model) is not None


def cached_snapshot(name: str) -> Path | None:
    """The folder of the model's files, or its GGUF file, if the cache has all of it; uses no network.

    BadModel if the cache has several quantizations of it, and `name` has none.
    """
    wanted = hub_name(name)
    if wanted is None:
        return None
    folder = _cached_folder(wanted.repository)
    if folder is None:
        return None
    if not wanted.quantization and all((folder / file).is_file() for file in TOKENIZER_FILES):
        try:
            find_weights(folder)
        except BadModel:  # an interrupted download, which fetching completes
            return None
        return folder
    return _cached_gguf(folder, wanted)


def fetch_tokenizer(name: str) -> Path:
    """As `fetch_snapshot`, without the weights; a GGUF file, which has its own tokenizer, if the cache has it."""
    wanted = hub_name(name)
    folder = _cached_folder(wanted.repository) if wanted is not None else None
    if folder is not None and (folder / "tokenizer.json").is_file():
        return folder
    if (snapshot := cached_snapshot(name)) is not None:
        return snapshot
    return fetch_snapshot(name if wanted is None else wanted.repository, files=TOKENIZER_FILES)


def fetch_snapshot(name: str, progress: ReportProgress | None = None, files: Sequence[str] = WANTED_FILES) -> Path:
    """Download the model's files that the cache lacks; returns their folder or the GGUF file, or raises BadModel."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(f"fetching {name}", done / total if total else None)

    return download(name, report, files)


def _cached_folder(repository: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        # Of what the pattern names, which is nothing, no file is missing.
        return Path(snapshot_download(repository, allow_patterns=["none/"], local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _cached_gguf(folder: Path, wanted: HubName) -> Path | None:
    found = quantizations(path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf"))
    whole = {name: files for name, files in found.items() if is_complete(files)}
    if not whole or (wanted.quantization and wanted.quantization not in whole):
        return None
    return folder / one_model(whole, wanted, lambda path: (folder / path).stat().st_size)[0]
