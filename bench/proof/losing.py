"""Section 12: a process that loses its GPU answers every request with that error, and ends.

An index out of range in a kernel makes every later call of a process fail, so it happens in a child process.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence

import torch
from proof.card import Card
from proof.models import tiny_model
from proof.runner import Check, Finding, Row, Section
from proof.serving import recorded, tiny_options
from proof.sizes import Sizes

from inference.core.engine_holder import EngineHolder
from inference.core.scheduler import Scheduler
from inference.engine.engine import Engine
from inference.engine.request import Request
from inference.loading.engine import load_engine
from protocol.errors import DeviceLost
from protocol.messages import CompletionRequest

STATUS = 75
"""The child's exit status when it has lost the device as it should; the driver may abort it instead, while it ends."""
WAIT_S = 60.0
MARK = "lost: "


def section(command: Sequence[str]) -> Section:
    """`command` runs `lose` in a process of its own."""
    return Section(12, "lost device", 14, lambda: _run(command), _conclude)


def lose(card: Card, sizes: Sizes) -> int:
    """Answer a request, lose the device, and submit another one; prints what happened, and returns the status."""
    statuses: list[str] = []

    def load(_: object) -> Engine:
        if card.simulated is not None:
            from tests.inference.simulated_cuda import Operators

            Operators(card.simulated).__enter__()  # on the model's thread
        with tiny_model(sizes.tiny_layers) as name:
            return load_engine(tiny_options(name, card, sizes))

    holder = EngineHolder("tiny", load, lambda status: statuses.append(status.state))
    scheduler = Scheduler(holder)
    request = next(request for request in recorded(sizes) if request.max_tokens)
    first = _answer(scheduler, request)
    _break(card)
    second = _answer(scheduler, request)
    scheduler._thread.join(WAIT_S)
    found = {
        "answers": [type(answer).__name__ for answer in (first, second)],
        "message": str(second),
        "lost": isinstance(scheduler.lost, DeviceLost),
        "state": statuses[-1],
    }
    print(MARK + json.dumps(found), flush=True)
    return STATUS if found["lost"] else 1


def _break(card: Card) -> None:
    if card.simulated is not None:
        card.simulated.break_context()
        return
    far = torch.full((1,), 2**40, dtype=torch.int64, device=card.device)
    try:
        torch.zeros(8, device=card.device)[far]
        card.wait()
    except RuntimeError as error:
        print(f"broken: {error!r}", flush=True)


def _answer(scheduler: Scheduler, request: CompletionRequest) -> object:
    done = threading.Event()
    asked = Request(request, changed=lambda each: done.set() if each.has_ended else None)
    scheduler.submit(asked)
    return asked.outcome if done.wait(WAIT_S) else None


def _run(command: Sequence[str]) -> Iterator[Row]:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    told = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    found = json.loads(told[-1].removeprefix(MARK)) if told else {}
    yield {"status": ended.returncode, **found, "output": (ended.stdout + ended.stderr)[-4000:]}


def _conclude(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        answers = row.get("answers", [])
        yield Check("a request is answered before", answers[:1] == ["Completion"], str(answers[:1]))
        yield Check("the one after learns why", answers[1:] == ["DeviceLost"], str(answers[1:]))
        ended = bool(row.get("lost")) and row.get("state") == "failed"
        yield Check("the core ends as failed", ended, f"{row.get('state')}, exit status {row['status']}")
        yield f"exit status {row['status']}: {row.get('message', row['output'][-300:])}"
