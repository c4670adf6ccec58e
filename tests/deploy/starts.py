"""How each file in deploy/ starts the core, as Docker and Kubernetes read it: arguments, variables, mounted folders."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = {
    f"{found['kind']} {found['metadata']['name']}": found
    for name in ("core", "router", "vllm")
    for found in yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8"))
}
KUSTOMIZATION = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
CORES = yaml.safe_load((DEPLOY / "cores.yaml").read_text(encoding="utf-8"))
_LINES = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
CONTAINERFILE = [(line.split()[0], line.partition(" ")[2].strip()) for line in _LINES if line and line[0] != "#"]
HOST = "midfill.example.org"
KEY = "engine-key"


@dataclass(frozen=True)
class Start:
    """`arguments` follow `midfill`; `mounts` are folders of the container."""

    arguments: list[str]
    variables: dict[str, str]
    mounts: list[str]

    def at(self, folders: Mapping[str, str]) -> Start:
        """The same start on this machine: each key, a folder or an address of the deployment, replaced by its value."""

        def here(text: str) -> str:
            names = "|".join(map(re.escape, folders))
            return re.sub(rf"({names})(?![\w.-])", lambda found: folders[found[0]], text)

        variables = {name: here(value) for name, value in self.variables.items()}
        return Start([here(argument) for argument in self.arguments], variables, self.mounts)


def of_the_image() -> Start:
    """What `docker run` starts."""
    instructions = dict(CONTAINERFILE)  # the last of each kind
    assert json.loads(instructions["ENTRYPOINT"]) == ["midfill"]
    variables = dict(pair.split("=", 1) for pair in shlex.split(instructions["ENV"]))
    return Start(json.loads(instructions["CMD"]), variables, [variables["HOME"]])


def of_kubernetes(model: str) -> Start:
    """The pod of the core, for this model."""
    pod = KUBERNETES["Deployment core"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (settings,) = [found for found in KUSTOMIZATION["configMapGenerator"] if "literals" in found]
    literals = dict(literal.split("=", 1) for literal in settings["literals"]) | {"model": model}
    given = {settings["name"]: literals, "midfill-keys": {"engine-key": KEY, "hf-token": ""}}
    variables = {}
    for variable in container["env"]:
        (reference,) = variable["valueFrom"].values()
        variables[variable["name"]] = given[reference["name"]][reference["key"]]
    arguments = [re.sub(r"\$\((\w+)\)", lambda name: variables[name[1]], item) for item in container["args"]]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    return Start(arguments, of_the_image().variables | variables, mounts)


def of_compose(file: Mapping[str, Any], service: str, model: str) -> Start:
    """The service of a compose file, for this model."""
    given = {"MODEL": model, "CORE_HOST": HOST, "ENGINE_KEY": KEY}
    found = file["services"][service]
    variables = {name: _filled(value, given) for name, value in found["environment"].items()}
    mounts = [volume.split(":")[1] for volume in found["volumes"]]
    return Start([_filled(item, given) for item in found["command"]], of_the_image().variables | variables, mounts)


def _filled(text: str, given: Mapping[str, str]) -> str:
    """`text` with `${NAME}`, `${NAME:-default}` and `${NAME:?message}` replaced; KeyError if it is not given."""

    def value(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        return given[name] if default is None else given.get(name, default)

    return re.sub(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}", value, text)
