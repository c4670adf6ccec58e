"""A small warehouse: which items are in it, on which shelf, and what they are worth."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


class UnknownItem(KeyError):
    """There is no item of that name."""


@dataclass
class Item:
    """So many pieces of one thing, on one shelf."""

    name: str
    price: float
    quantity: int = 0
    shelf: str = ""

    @property
    def value(self) -> float:
        """What all the pieces are worth together."""
        return self.price * self.quantity

    def take(self, count: int) -> None:
        """Take some pieces away."""
        if count > self.quantity:
            raise ValueError(f"there are only {self.quantity} pieces of {self.name}")
        self.quantity -= count


class Warehouse:
    """Items by their names."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items: dict[str, Item] = {}
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def add(self, item: Item) -> None:
        """Put an item into the warehouse."""
        if item.name in self._items:
            raise ValueError(f"there is an item {item.name!r} already")
        self._items[item.name] = item

    def get(self, name: str) -> Item:
        """Look an item up by its name."""
        if name not in self._items:
            raise UnknownItem(name)
        return self._items[name]

    def rename(self, old: str, new: str) -> None:
        """Give an item another name."""
        item = self.get(old)
        if new in self._items:
            raise ValueError(f"there is an item {new!r} already")
        del self._items[old]
        item.name = new
        self._items[new] = item

    def on_shelf(self, shelf: str) -> list[Item]:
        """All items on one shelf, the most valuable first."""
        items = [item for item in self._items.values() if item.shelf == shelf]
        items.sort(key=lambda item: item.value, reverse=True)
        return items

    def shelves(self) -> list[str]:
        """The names of all shelves with something on them."""
        return sorted({item.shelf for item in self._items.values() if item.quantity > 0})

    def value(self) -> float:
        """What everything is worth together."""
        return sum(item.value for item in self._items.values())

    def value_by_shelf(self) -> dict[str, float]:
        """What each shelf holds, in money."""
        values: dict[str, float] = {}
        for item in self._items.values():
            values[item.shelf] = values.get(item.shelf, 0.0) + item.value
        return values


def load_json(path: Path) -> Warehouse:
    """Read a warehouse from a JSON file."""
    with path.open(encoding="utf-8") as file:
        rows = json.load(file)
    return Warehouse(Item(**row) for row in rows)


def save_json(warehouse: Warehouse, path: Path) -> None:
    """Write a warehouse to a JSON file."""
    rows = [asdict(item) for item in warehouse]
    with path.open("w", encoding="utf-8") as file:
        json.dump(rows, file, indent=2)


def load_csv(path: Path) -> Warehouse:
    """Read a warehouse from a CSV file with a header line."""
    warehouse = Warehouse()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            warehouse.add(Item(row["name"], float(row["price"]), int(row["quantity"]), row["shelf"]))
    return warehouse


def save_csv(warehouse: Warehouse, path: Path) -> None:
    """Write a warehouse to a CSV file with a header line."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "price", "quantity", "shelf"])
        for item in warehouse:
            writer.writerow([item.name, item.price, item.quantity, item.shelf])


def report(warehouse: Warehouse) -> str:
    """A table of all items, shelf by shelf."""
    lines = []
    for shelf in warehouse.shelves():
        items = warehouse.on_shelf(shelf)
        lines.append(f"{shelf}: {len(items)} items")
        lines += [f"  {item.name:<20} {item.quantity:>6} {item.value:>10.2f}" for item in items]
    lines.append(f"{'total':<22} {warehouse.value():>17.2f}")
    return "\n".join(lines)
