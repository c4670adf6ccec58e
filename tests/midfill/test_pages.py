"""The files of web pages, and the keys that open them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from midfill.pages import CODE_S, STATIC_PATH, PageKeys, page_routes


def client(built: Path) -> TestClient:
    return TestClient(Starlette(routes=page_routes("playground", built)))


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "playground.html").write_text("<p>page")
    (folder / "playground.js").write_text("1")
    (tmp_path / "secret").write_text("secret")
    return folder


@pytest.mark.parametrize("path", ["/playground", f"{STATIC_PATH}/playground.js"])
def test_pages_may_load_nothing_from_elsewhere_and_run_no_inline_script(built: Path, path: str) -> None:
    answer = client(built).get(path)
    assert answer.status_code == 200
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["../secret", "..%2fsecret", "%2e%2e/secret", "/etc/passwd", "none.js", ""])
def test_only_the_built_files_are_served(built: Path, path: str) -> None:
    assert client(built).get(f"{STATIC_PATH}/{path}").status_code == 404


def test_a_page_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    answer = client(tmp_path / "missing").get("/playground")
    assert answer.status_code == 503
    assert "make pages" in answer.text


def test_good_is_calm_and_costly_is_red() -> None:
    css = (Path(__file__).parents[2] / "web" / "src" / "page.css").read_text(encoding="utf-8")
    found = re.findall(r"--(hit|miss): light-dark\((#\w{6}), (#\w{6})\)", css)
    assert len(found) == 2
    for name, *colours in found:
        for colour in colours:
            red, green = int(colour[1:3], 16), int(colour[3:5], 16)
            assert (green > red) == (name == "hit"), (name, colour)


def test_a_code_is_exchanged_once_and_in_time_and_the_key_always() -> None:
    now = 0.0
    keys = PageKeys(lambda: now)
    code, late = keys.new_code(), keys.new_code()
    assert [keys.exchange(code), keys.exchange(code)] == [keys.key, None]
    assert [keys.exchange(keys.key), keys.exchange(keys.key)] == [keys.key, keys.key]
    now = CODE_S
    assert keys.exchange(late) is None
    assert not keys.admits(late)
    assert keys.exchange("") is None
    assert keys.exchange("\N{SNOWMAN}") is None
    assert keys.admits(keys.key)
