from __future__ import annotations

from inference.core.scheduler import APART_S, AT_LATEST_S, STEP_S, SavingSchedule


class Disk:
    """Stands in for an engine that needs some steps to save everything, at a time that the test sets."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.now = 0.0
        self.saved: list[float] = []
        self.with_snapshots: list[float] = []
        self.schedule = SavingSchedule(self.save, lambda: self.now)

    def save(self, seconds: float, snapshots: bool) -> bool:
        assert seconds == STEP_S
        if snapshots:
            self.with_snapshots.append(self.now)
        self.saved.append(self.now)
        self.left -= 1
        return self.left <= 0


def test_at_rest_steps_follow_each_other_until_all_is_saved() -> None:
    disk = Disk(steps=3)
    assert [disk.schedule.step_at_rest() for _ in range(3)] == [False, False, True]


def test_without_a_rest_a_pass_begins_late_and_its_steps_lie_apart() -> None:
    disk = Disk(steps=2)
    while disk.now < 2 * AT_LATEST_S:
        disk.schedule.step_between_forwards()
        disk.now += APART_S / 4
    assert disk.saved == [AT_LATEST_S, AT_LATEST_S + APART_S]
    assert disk.with_snapshots == [], "one can take longer than a request may wait"
    disk.schedule.step_at_rest()
    assert disk.with_snapshots == [disk.now]


def test_a_rest_puts_off_what_would_be_done_without_one() -> None:
    disk = Disk(steps=1)
    disk.now = AT_LATEST_S - 1
    assert disk.schedule.step_at_rest()
    disk.now = 2 * AT_LATEST_S - 2
    disk.schedule.step_between_forwards()
    assert len(disk.saved) == 1
