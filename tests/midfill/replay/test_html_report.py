import html
import re
from pathlib import Path

from midfill.replay.html_report import _HEAT_COLOURS, write_html_report
from midfill.replay.report import LEGEND
from midfill.replay.results import Record, ReplayResult, Savings, StrategyResult
from protocol.heat import Heat

SAVINGS = Savings(0.25, 6.7, 9.6, 0.42)


def records(heats: list[Heat]) -> tuple[Record, ...]:
    recomputed = {"hot": 1, "warm": 700, "cold": 1000}
    return tuple(
        Record(step, f"kind {heat}", True, 1, 1000, recomputed[heat], 0, 1.0, heat, "", (step * 1000,))
        for step, heat in enumerate(heats)
    )


def test_the_page_stands_alone_and_shows_every_strategy_and_kind(tmp_path: Path) -> None:
    efim = StrategyResult("efim", records(["cold", "hot", "warm"]), ("one thing went wrong",), SAVINGS, ("device",))
    psm = StrategyResult("psm", records(["cold", "warm", "warm"]), (), SAVINGS, ("device",))
    path = tmp_path / "report.html"
    write_html_report(ReplayResult("a <session>", "model", "engine", (psm, efim)), path)
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)  # nothing is fetched
    assert "a &lt;session&gt;" in page
    for text in ("efim", "psm", "kind warm", "kind cold", "25.0%", "Memory", html.escape(LEGEND)):
        assert text in page


def test_a_replay_without_a_store_has_no_plot_of_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_html_report(ReplayResult("session", "model", "stdio", (StrategyResult("efim", (), (), None),)), path)
    assert "<h2>Memory</h2>" not in path.read_text(encoding="utf-8")


def test_good_is_calm_and_costly_is_warm_on_every_page() -> None:
    css = (Path(__file__).parents[3] / "web" / "src" / "page.css").read_text(encoding="utf-8")
    found = re.findall(r"--(hot|cold): light-dark\((#\w{6}), (#\w{6})\)", css)
    assert len(found) == 2
    for name, *colours in [*found, *((name, colour) for name, colour in _HEAT_COLOURS.items() if name != "warm")]:
        for colour in colours:
            red, green = int(colour[1:3], 16), int(colour[3:5], 16)
            assert (green > red) == (name == "hot"), (name, colour)
