"""What of midfill is installed: the packages that it requires, and those that its extra `core` adds."""

from __future__ import annotations

import re
from importlib import metadata

ENGINE = "engine"  # the extra in pyproject.toml that `core` consists of, but for the bundled model
REMEDY = "run `make setup` in the clone, or install the wheels of `make wheels` with `[core]`"


def version_of(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def missing(extra: str = "") -> list[str]:
    """The packages that midfill requires, or that its extra adds, and that are not installed."""
    return [name for name in _required(extra) if version_of(name) is None]


def is_of_engine(module: str) -> bool:
    """Whether a package of the engine's extra has that module."""
    return module.partition(".")[0] in [name.replace("-", "_") for name in _required(ENGINE)]


def _required(extra: str) -> list[str]:
    requirements = metadata.requires("midfill") or [] if version_of("midfill") else ["midfill"]
    wanted = [text for text in requirements if (f'extra == "{extra}"' if extra else "") in text]
    return [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in wanted if extra or "extra ==" not in text]
