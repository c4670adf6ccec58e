"""Imports point one way only: between the packages, and between the rooms of each package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
MAY_IMPORT = {
    "protocol": set(),
    "kv_store": set(),
    "lsp_server": {"protocol"},
    "inference": {"protocol", "kv_store"},
    "midfill": {"protocol", "kv_store", "lsp_server", "inference"},
    "midfill_lab": {"protocol", "kv_store", "lsp_server", "inference", "midfill"},
}
PRODUCT = MAY_IMPORT.keys() - {"midfill_lab"}
ROOTS = dict.fromkeys(PRODUCT, REPOSITORY) | {"midfill_lab": REPOSITORY / "lab"}
# The rooms of each package, the lowest first: a room imports rooms of earlier rows alone, and rooms of one row do not
# import each other. A room is a package or a module; a module belongs to the room with the longest name that fits.
ROOMS: dict[str, list[set[str]]] = {
    "inference": [
        {"inference"},
        {"inference.text"},
        {"inference.checkpoints"},
        {"inference.backends"},
        {"inference.backends.llama", "inference.backends.generic"},
        {"inference.backends.cpu"},
        {"inference.engine"},
        {"inference.loading"},
        {"inference.remote.server", "inference.remote.supervisor"},
        {"inference.remote"},
        {"inference.core.queue", "inference.core.engine_holder"},
        {"inference.core.scheduler"},
        {"inference.core.http"},
        {"inference.core.lifecycle", "inference.core.users", "inference.core.connections"},
        {"inference.core.admission", "inference.core.metrics"},
        {"inference.core.app", "inference.core.websocket"},
        {"inference.core"},
    ],
    "kv_store": [
        {"kv_store"},
        {"kv_store.interface"},
        {"kv_store.main_memory", "kv_store.page_tree", "kv_store.purges"},
        {"kv_store.tiers", "kv_store.disk_folders"},
        {"kv_store.page_snapshots", "kv_store.workspace"},
        {"kv_store.disk"},
        {"kv_store.persistence"},
        {"kv_store.store"},
    ],
    "lsp_server": [
        {"lsp_server.documents", "lsp_server.core_client"},
        {"lsp_server.exclusion", "lsp_server.filters", "lsp_server.next_edit"},
        {"lsp_server.context"},
        {"lsp_server.prompts"},
        {"lsp_server.suggesting"},
        {"lsp_server.usage"},
        {"lsp_server"},
        {"lsp_server.features"},
        {"lsp_server.launch"},
    ],
    "midfill": [
        {"midfill.console", "midfill.options", "midfill.headless", "midfill.pages"},
        {"midfill.core_to_ask", "midfill.doctor", "midfill.replay", "midfill.stats"},
        {"midfill.complete", "midfill.cores", "midfill.models", "midfill.play"},
        {"midfill.commands"},
        {"midfill"},
    ],
}
LAB_LIBRARIES = {"anyio", "matplotlib", "packaging", "peft"}
MODEL_LIBRARIES = {"torch", "transformers", "accelerate", "safetensors", "tokenizers", "huggingface_hub"}
FORBIDDEN = {
    "protocol": {"pygls", "lsprotocol", "numpy", *MODEL_LIBRARIES},
    "lsp_server": {"numpy", *MODEL_LIBRARIES},
    "inference": {"pygls", "lsprotocol"},
    "kv_store": {"pygls", "lsprotocol", "transformers", "tokenizers"},
}
# These rooms decide from text and numbers alone: no model, no protocol library, no input or output.
PURE_ROOMS = ["lsp_server/documents", "lsp_server/filters", "lsp_server/next_edit"]
PURE_MODULES = [
    *sorted(str(path.relative_to(REPOSITORY)) for room in PURE_ROOMS for path in (REPOSITORY / room).glob("*.py")),
    "lsp_server/prompts/anchors.py",
    "lsp_server/prompts/planner.py",
    "lsp_server/suggesting/queries.py",
    "protocol/messages.py",
]
IMPURE = {"pygls", "lsprotocol", "websockets", "asyncio", "logging", "os", "pathlib", "subprocess", *MODEL_LIBRARIES}


def module_of(file: Path) -> str:
    parts = file.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts).removeprefix("lab.").removesuffix(".__init__")


def folder_of(module: str) -> Path:
    """Where a package's modules would lie."""
    return ROOTS.get(module.partition(".")[0], REPOSITORY) / module.replace(".", "/")


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it, under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            folder = folder_of(node.module or "")
            for alias in node.names:  # `from package import module` imports the module
                yield f"{node.module}.{alias.name}" if (folder / f"{alias.name}.py").is_file() else node.module or ""


def row_of(module: str, package: str) -> tuple[int, str]:
    """The row and the name of a module's room."""
    rooms = [(room, row) for row, names in enumerate(ROOMS[package]) for room in names]
    found = [(room, row) for room, row in rooms if module == room or module.startswith(f"{room}.")]
    assert found, f"{module} is in no room"
    room, row = max(found, key=lambda entry: len(entry[0]))
    return row, room


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_packages_import_only_what_they_may(package: str) -> None:
    files = sorted(folder_of(package).rglob("*.py"))
    assert files
    for file in files:
        names = {name.partition(".")[0] for name in imported(file)}
        assert (names & MAY_IMPORT.keys()) - {package} <= MAY_IMPORT[package], file
        assert not names & FORBIDDEN.get(package, set()), file
        assert package not in PRODUCT or not names & LAB_LIBRARIES, file


@pytest.mark.parametrize("package", sorted(MAY_IMPORT.keys() - {"midfill"}))
def test_no_package_runs_the_command_line_above_it(package: str) -> None:
    for file in sorted((REPOSITORY / package).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        run = re.findall(r'"-m",\s*"([\w.]+)"', text)
        assert not [module for module in run if module.partition(".")[0] == "midfill"], file


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_rooms_import_lower_rooms_alone(package: str) -> None:
    for file in sorted(folder_of(package).rglob("*.py")):
        row, room = row_of(module_of(file), package)
        for name in imported(file):
            if name.partition(".")[0] == package:
                its_row, its_room = row_of(name, package)
                assert its_room == room or its_row < row, f"{module_of(file)} imports {name}, which is in a higher room"


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_every_room_is_there_and_says_what_it_is(package: str) -> None:
    for name in sorted(set().union(*ROOMS[package])):
        path = folder_of(name)
        file = path / "__init__.py" if path.is_dir() and (path / "__init__.py").is_file() else path.with_suffix(".py")
        assert path.is_dir() or file.is_file(), name
        if file.is_file():
            assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))), file


@pytest.mark.parametrize("module", PURE_MODULES)
def test_pure_modules_do_no_io(module: str) -> None:
    assert not {name.partition(".")[0] for name in imported(REPOSITORY / module)} & IMPURE


def test_the_language_server_comes_up_without_a_model_library() -> None:
    program = "import sys, lsp_server.launch; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    assert "pygls" in loaded
    assert not loaded & {"numpy", "tree_sitter", *MODEL_LIBRARIES}
