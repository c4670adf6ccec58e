import webbrowser

import pytest
from typer.testing import CliRunner

from midfill.commands import app
from protocol.settings import Settings


@pytest.mark.parametrize(("options", "in_browser"), [((), ["http://core/dashboard#code"]), (("--no-browser",), [])])
def test_the_dashboard_is_printed_with_its_key_and_opened_with_a_code(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], in_browser: list[str]
) -> None:
    async def url(settings: Settings, *, once: bool) -> str:
        return f"http://{settings.model}/dashboard#{'code' if once else 'key'}"

    opened: list[str] = []
    monkeypatch.setattr("lsp_server.core_client.control.dashboard_url", url)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    result = CliRunner().invoke(app, ["dashboard", "--model", "core", *options])
    assert (result.stdout, opened) == ("http://core/dashboard#key\n", in_browser)
