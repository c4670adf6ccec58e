"""The files in deploy/ are true: what they name exists, and the names agree."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from inference.core.metrics import Metrics
from inference.remote.server import read_engine_address
from protocol.settings import Settings
from tests.deploy.starts import COMPOSE, CORES, DEPLOY, KUBERNETES, KUSTOMIZATION, Start, of_compose, of_kubernetes

ROUTER = (DEPLOY / "kubernetes" / "haproxy.cfg").read_text(encoding="utf-8")
BOARD = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))


def pod(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = KUBERNETES[f"{kind} {name}"]["spec"]["template"]["spec"]
    return found


def container(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = pod(kind, name)["containers"][0]
    return found


def test_every_metric_of_the_dashboard_is_exported() -> None:
    exported = dict(re.findall(r"^# TYPE (\w+) (\w+)$", Metrics().render(0, True, None), re.MULTILINE))
    expressions = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    named = {name for expression in expressions for name in re.findall(r"midfill_\w+", expression)}
    assert len(named) > 10
    for name in named:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert base in exported, name
        assert (base != name) == (exported[base] == "histogram"), name


def test_panels_have_places_and_names_of_their_own() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert {variable["name"] for variable in BOARD["templating"]["list"]} == {"datasource"}


@pytest.mark.parametrize("start", [of_compose(COMPOSE, "core", ""), of_kubernetes("")])
def test_the_engine_is_the_router(start: Start) -> None:
    (engine,) = [item.removeprefix("--engine=") for item in start.arguments if item.startswith("--engine=")]
    address = read_engine_address(engine)
    assert address is not None
    assert address.url == "http://router:8000"
    assert "bind :8000\n" in ROUTER
    assert "router" in COMPOSE["services"]
    assert KUBERNETES["Service router"]["spec"]["ports"][0]["port"] == 8000


def test_the_proxy_names_every_core() -> None:
    text = (DEPLOY / "cores.cfg").read_text(encoding="utf-8")
    cores = re.findall(r"server (core-\d+) \1:8765$", text, re.MULTILINE)
    assert [name for name in CORES["services"] if name != "proxy"] == cores
    for own in ("MIDFILL_RUNTIME_DIR", "MIDFILL_CACHE_DIR"):
        assert len({of_compose(CORES, name, "").variables[own] for name in cores}) == len(cores)
    assert CORES["services"]["proxy"]["volumes"][0].startswith("./cores.cfg:")


def test_the_router_names_every_server_and_the_header_of_sessions() -> None:
    servers = re.findall(r'server (vllm-\d+) "(\1)\$\{VLLM_DOMAIN\}:8000"$', ROUTER, re.MULTILINE)
    names = [name for name, _ in servers]
    assert [name for name in COMPOSE["services"] if name.startswith("vllm-")] == names
    stateful = KUBERNETES["StatefulSet vllm"]["spec"]
    assert [f"vllm-{number}" for number in range(stateful["replicas"])] == names
    (domain,) = container("Deployment", "router")["env"]
    assert domain == {"name": "VLLM_DOMAIN", "value": f".{stateful['serviceName']}.midfill.svc.cluster.local"}
    assert KUBERNETES["Service vllm"]["spec"]["clusterIP"] == "None"
    assert f"balance hdr({Settings().engine_session_header})" in ROUTER


def test_the_routers_configuration_is_the_same_in_each_file() -> None:
    (mount,) = COMPOSE["services"]["router"]["volumes"]
    source, target, _ = mount.split(":")
    assert (DEPLOY / source).read_text(encoding="utf-8") == ROUTER
    (mounted,) = container("Deployment", "router")["volumeMounts"]
    assert f"{mounted['mountPath']}/haproxy.cfg" == target


def test_what_manifests_refer_to_is_there() -> None:
    assert all((DEPLOY / "kubernetes" / name).is_file() for name in KUSTOMIZATION["resources"])
    router, generated = KUSTOMIZATION["configMapGenerator"]
    assert all((DEPLOY / "kubernetes" / name).is_file() for name in router["files"])
    assert {"name": "config", "configMap": {"name": router["name"]}} in pod("Deployment", "router")["volumes"]
    keys = {literal.partition("=")[0] for literal in generated["literals"]}
    for kind, name in (("Deployment", "core"), ("StatefulSet", "vllm")):
        for variable in container(kind, name)["env"]:
            reference = variable["valueFrom"].get("configMapKeyRef")
            assert reference is None or (reference["name"], reference["key"] in keys) == (generated["name"], True)
        volumes = {volume["name"] for volume in pod(kind, name)["volumes"]}
        claims = KUBERNETES[f"{kind} {name}"]["spec"].get("volumeClaimTemplates", ())
        volumes |= {claim["metadata"]["name"] for claim in claims}
        assert {mount["name"] for mount in container(kind, name)["volumeMounts"]} == volumes
    for service in COMPOSE["services"].values():
        assert {config["source"] for config in service.get("configs", ())} <= COMPOSE["configs"].keys()
    for config in COMPOSE["configs"].values():
        assert yaml.safe_load(config["content"])
