"""Proves the GPU path on this machine's card, within a budget of seconds, without a network.

    python bench/gpu_proof.py [--budget 300] [--sections 3,5] [--output FOLDER] [--dry]

Needs torch, transformers, numpy, msgspec, gguf, psutil and this repository, which need not be installed. Models have
random weights made on the card; only `tiny` is read from its checkpoint. Each section writes a line to `proof.jsonl`
when it ends. However the command ends, it writes `proof.json` and `proof.txt`, and prints the table last. The exit
status is 0 if no section failed or was cut short. `--dry` runs the same sections, without a budget, at tiny sizes on
the simulated device of the tests.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STARTED = time.monotonic()  # before the imports below, which take seconds of the budget
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import torch  # noqa: E402
from proof import attention, candidates, correctness, losing, machine, memory, serving, speed, variants  # noqa: E402
from proof.card import Card, real_card, simulated_card  # noqa: E402
from proof.report import has_failed, table  # noqa: E402
from proof.runner import Record, Runner, Section  # noqa: E402
from proof.sizes import DRY, FULL  # noqa: E402

from inference.backends import cuda  # noqa: E402
from protocol.errors import MidfillError  # noqa: E402

BUDGET_S = 300.0
GRACE_S = 8.0
"""Seconds after the budget, when a call that does not return is left behind."""
OVER, FAILED, UNUSABLE = 0, 1, 2


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds, from the start of this command")
    parser.add_argument("--sections", default="", help="their numbers, as 0,3,5; all by default")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu-proof", help="folder for the files")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on a simulated device")
    parser.add_argument("--go-on", action="store_true", help="keep the sections that the output folder has")
    parser.add_argument("--lose-device", action="store_true", help=argparse.SUPPRESS)  # what section 12 runs
    return parser.parse_args(given)


def sections_of(card: Card, options: argparse.Namespace) -> list[Section]:
    """All sections in their order, or the chosen ones; SystemExit for a number that there is not."""
    sizes = DRY if options.dry else FULL
    lose = [sys.executable, str(ROOT / "bench" / "gpu_proof.py"), "--lose-device", "--device", str(card.device)]
    every = [
        *machine.sections(card, sizes),
        correctness.section(card, sizes),
        attention.section(card),
        *speed.sections(card, sizes),
        *serving.sections(card, sizes),
        *memory.sections(card, sizes),
        losing.section([*lose, "--dry"] if options.dry else lose),
        variants.section(card, sizes),
        correctness.split_section(card, sizes),
        candidates.section(card, sizes),
    ]
    wanted = [number.strip() for number in options.sections.split(",") if number.strip()]
    unknown = set(wanted) - {str(section.number) for section in every}
    if unknown:
        raise SystemExit(f"there is no section {', '.join(sorted(unknown))}: choose 0 to {every[-1].number}")
    return [section for section in every if not wanted or str(section.number) in wanted]


class Ending:
    """Writes and prints what has been found, once, however the command ends."""

    def __init__(self, record: Record, folder: Path, facts: dict[str, object]) -> None:
        self._record, self._folder, self._facts = record, folder, facts
        self._once = threading.Lock()
        self.runner: Runner | None = None
        self.status = FAILED

    def __call__(self) -> None:
        if not self._once.acquire(blocking=False):
            return
        if self.runner is not None and self.runner.running is not None:
            self._record.add(self.runner.stopped("the command ended"))
        self._facts["seconds"] = round(time.monotonic() - STARTED, 1)
        self._record.write(self._facts)
        text = table(self._record.outcomes, self._facts)
        (self._folder / "proof.txt").write_text(text + "\n", encoding="utf-8")
        print(text, flush=True)
        self.status = FAILED if has_failed(self._record.outcomes) else OVER

    def leave(self) -> None:
        """End the process where a call does not return."""
        self()
        os._exit(FAILED)


@contextmanager
def ending_by(ending: Ending, seconds: float) -> Iterator[None]:
    """Calls `ending` at the end of the block, at SIGTERM, and at the latest so many seconds from now."""
    watchdog = threading.Timer(min(seconds, threading.TIMEOUT_MAX), ending.leave)
    watchdog.daemon = True
    watchdog.start()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        watchdog.cancel()
        ending()


def main(given: Sequence[str]) -> int:
    """Run the sections, and return the exit status."""
    options = arguments(given)
    sizes = DRY if options.dry else FULL
    open_card = simulated_card(sizes.rounds) if options.dry else real_card(options.device, sizes.rounds)
    torch.manual_seed(0)
    try:
        with open_card as card:
            if options.lose_device:
                return losing.lose(card, sizes)
            return _prove(card, options)
    except MidfillError as error:
        print(f"nothing is proved: {error}")
        return UNUSABLE


def _prove(card: Card, options: argparse.Namespace) -> int:
    sections = sections_of(card, options)
    record = Record(options.output, go_on=options.go_on)
    ending = Ending(record, options.output, machine.facts())
    gc.collect()
    gc.freeze()  # each capture collects garbage, which would look through all that is imported
    deadline = math.inf if options.dry else STARTED + options.budget
    with ending_by(ending, deadline + GRACE_S - time.monotonic()):
        runner = Runner(
            record,
            deadline,
            is_lost=lambda: cuda.is_lost(card.device),
            between=card.free_bytes,
            tell=lambda text: print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True),
        )
        ending.runner = runner
        left = runner.run(sections)
    if left:
        _go_on(left, options)
    return ending.status


def _go_on(left: Sequence[Section], options: argparse.Namespace) -> None:
    """Replace this process, which has lost the device, by one that runs the sections that are left."""
    budget = options.budget - (time.monotonic() - STARTED)
    numbers = ",".join(str(section.number) for section in left)
    print(f"the device is lost to this process: another one goes on with {numbers}", flush=True)
    again = ["--budget", str(budget), "--sections", numbers, "--output", str(options.output), "--go-on"]
    command = [sys.executable, str(ROOT / "bench" / "gpu_proof.py"), "--device", options.device, *again]
    os.execv(sys.executable, [*command, *(["--dry"] if options.dry else [])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
