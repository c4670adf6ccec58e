"""The picture of the demo: at each moment one row in each place, and a telling one where nothing moves."""

import re
from pathlib import Path
from xml.etree import ElementTree

from bench.demo_picture import write_picture
from tests.midfill.test_demo import RUN


def visible(element: str, second: float) -> bool:
    """Whether an element of the picture is seen at this time."""
    animated = re.search(r'values="([^"]+)" keyTimes="([^"]+)" dur="([\d.]+)s"', element)
    if animated is None:
        return True
    times = [float(time) * float(animated[3]) for time in animated[2].split(";")]
    return dict(zip(times, animated[1].split(";"), strict=True))[max(t for t in times if t <= second)] == "visible"


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "demo.svg"
    write_picture(path, RUN, "warehouse.py", "python")
    svg = path.read_text(encoding="utf-8")
    ElementTree.fromstring(svg)
    assert "warehouse.py" in svg
    rows = [line for line in svg.splitlines() if line.startswith('<g transform="translate(0 ')]
    places = [re.search(r"translate\(0 (\d+)\)", row)[1] for row in rows]  # type: ignore[index]
    for second in (0.0, 0.75, 5.0):
        seen = [place for row, place in zip(rows, places, strict=True) if visible(row, second)]
        assert len(seen) == len(set(seen))  # each place has one row at a time
    costs = {second: "".join(row for row in rows if visible(row, second)) for second in (0.0, 0.75)}
    assert "600 of 1,000" in costs[0.0]  # a prefetch, which is shown first
    assert "300 of 1,000" not in costs[0.0]
    assert "1 of 1,000" in costs[0.75]
    still = "".join(row for row in rows if 'visibility="hidden"' not in row)
    assert "more" in still  # a suggestion
    assert "600 of 1,000" not in still
