"""Counts what lies on the shelves."""

from dataclasses import dataclass, field

LIMIT = 1_000_000
MASK = 0xFFFFFFFF


@dataclass
class Shelf:
    name: str
    items: dict[str, int] = field(default_factory=dict)

    def add(self, item: str, count: int = 1) -> None:
        # see count(item) for what is left
        self.items[item] = self.items.get(item, 0) + count

    def count(self, item: str) -> int:  # never below zero
        return max(0, self.items.get(item, 0))


def report(shelves: list[Shelf]) -> str:
    lines = [f"{shelf.name}: {sum(shelf.items.values()):>5}" for shelf in shelves]
    if not lines:
        return "nothing (yet)"
    return "\n".join(sorted(lines, key=lambda line: line.split(":")[0]))
