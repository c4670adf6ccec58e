"""What generated code cannot do: run on, eat memory, breed, call out, read, write, signal, or claim to have passed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from midfill_lab.evaluation.sandbox import Confinement, Limits, Sandbox, confinements
from protocol.errors import BadInput

LIMITS = Limits(cpu_seconds=2, wall_seconds=60, memory_bytes=2**28)  # a busy machine may take its time
BROKEN = Confinement("a broken one", ("false",))


@pytest.fixture(scope="module", params=confinements(), ids=lambda confinement: confinement.name)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return Sandbox(LIMITS, candidates=(request.param,))
    except BadInput:
        pytest.skip(f"this machine cannot confine by {request.param.name}")


@pytest.fixture(scope="module")
def any_sandbox() -> Sandbox:
    """For what the confinement does not matter to."""
    return Sandbox(LIMITS, allow_unconfined=True)


def test_a_program_passes_by_its_tests(any_sandbox: Sandbox) -> None:
    program = "import math\nprint('heard by no one')\ndef root(x): return math.sqrt(x)"
    assert any_sandbox.run(program, "assert root(4) == 2") == "passed"
    assert any_sandbox.run(program, "assert root(4) == 3") == "failed"
    assert any_sandbox.run(program, "root('four')") == "failed"
    assert any_sandbox.run(program, "square(4)") == "failed"


def test_plain_values_cross_both_ways_and_keep_their_types(any_sandbox: Sandbox) -> None:
    tests = """
from collections import Counter
for value in (None, -1.5, float("inf"), 2**99, "\\u00e4\\n", b"x", (1, [2, {3: {4}}]), range(3), 1j, Counter("abca")):
    assert same(value) == value and type(same(value)) is type(value)
"""
    assert any_sandbox.run("def same(x): return x", tests) == "passed"


@pytest.mark.parametrize(
    "program",
    [
        "assert False",
        "def f(:",
        "raise SystemExit(0)",
        "import os\nos._exit(0)",
        "def g(): g()\ng()",
        "import os, atexit\natexit.register(os._exit, 0)",
        # To the tests' frame, names and memory there is no way.
        "import sys\nsys._getframe(1).f_locals.update(part='examiner', request={'part': 'examiner'})",
        "import __main__, os\n__main__.run_tests = lambda *_: None\nos.write(1, __main__.VERDICT)\ndef f(): return 2",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'passed')\n    except OSError: pass\nos._exit(0)",
        "import builtins\nbuiltins.AssertionError = type('Never', (Exception,), {})\ndef f(): return 2",
        # Values that would be equal to everything, or that run code where they are read.
        "class Equal:\n    def __eq__(self, other): return True\ndef f(): return Equal()",
        "class Equal(int):\n    def __eq__(self, other): return True\ndef f(): return Equal(2)",
        "class Exit:\n    def __reduce__(self): return (exit, (0,))\ndef f(): return Exit()",
        "class Print:\n    def __reduce__(self): return (print, ('passed',))\ndef f(): return Print()",
    ],
)
def test_a_program_cannot_pass_but_by_its_answers(any_sandbox: Sandbox, program: str) -> None:
    assert any_sandbox.run(program, "assert f() == 1") == "failed"


@pytest.mark.parametrize(
    ("own", "tests"),
    [
        ("def abs(x): return 0", "assert abs(f() - 1.5) < 1e-6"),
        ("def all(x): return 1", "assert all([f() == 1])"),
        ("def len(x): return 2", "assert len([f()]) == 2"),
    ],
)
def test_a_programs_own_builtins_do_not_pass_it(any_sandbox: Sandbox, own: str, tests: str) -> None:
    assert any_sandbox.run(f"def f(): return 99\n{own}", tests) == "failed"


@pytest.mark.parametrize(("program", "tests"), [("while True: pass", ""), ("def f():\n    while True: pass", "f()")])
def test_an_endless_loop_is_ended(sandbox: Sandbox, program: str, tests: str) -> None:
    short = Sandbox(Limits(cpu_seconds=1, wall_seconds=60), candidates=(sandbox.confinement,))
    assert short.run(program, tests) == "timed out"


def test_a_sleeper_is_ended(any_sandbox: Sandbox) -> None:
    sleeping = Sandbox(Limits(wall_seconds=2), candidates=(any_sandbox.confinement,))
    assert sleeping.run("import time\ntime.sleep(60)") == "timed out"


def test_memory_is_limited(sandbox: Sandbox) -> None:
    # Address space is what is limited: no page is touched, so the machine's speed does not matter.
    assert sandbox.run("import mmap\nkept = [mmap.mmap(-1, 2**24) for _ in range(4)]") == "passed"
    assert sandbox.run("import mmap\nkept = [mmap.mmap(-1, 2**24) for _ in range(16)]") == "failed"


def attempts(*calls: str, before: str = "") -> str:
    """A program that raises unless every one of the calls raises OSError."""
    tries = [f"try: {call}\nexcept OSError: pass\nelse: raise AssertionError({call!r})" for call in calls]
    return "\n".join(["import ctypes, mmap, os, signal, socket, subprocess, sys, threading", before, *tries])


# What undid a guard that lived in the program's own process.
UNDO = "import __main__\n__main__._FORBIDDEN = ('x',)\n__main__._WRITING = 0\n"


def test_no_process_or_thread_starts_and_no_user_is_root(sandbox: Sandbox) -> None:
    no_thread = "try: threading.Thread(target=print).start()\nexcept RuntimeError: pass\nelse: raise AssertionError"
    forks = attempts("os.fork()", "subprocess.run(['/bin/true'])", "os.posix_spawn(sys.executable, ['x'], {})")
    assert sandbox.run(f"{forks}\n{no_thread}\nassert os.getuid() != 0 != os.geteuid() and os.getgid() != 0") == "passed"
    root = attempts("os.setuid(0)", "os.setreuid(0, 0)", "os.setresgid(0, 0, 0)", "os.setgroups([0])", "os.fork()")
    assert sandbox.run(root) == "passed"
    regain = "libc = ctypes.CDLL(None)\nlibc.unshare(1 << 28)\nassert libc.mount(b'x', b'/', b'tmpfs', 0, None) != 0"
    assert sandbox.run(f"import ctypes\n{regain}") == "passed"


def test_nothing_outside_is_read_changed_or_made(sandbox: Sandbox, tmp_path: Path) -> None:
    key = tmp_path / "id_ed25519"
    key.write_text("secret")
    path = repr(str(key))
    reading = [f"open({path})", f"os.stat({path})", f"os.listdir({str(tmp_path)!r})", "os.listdir('/proc/self/root')"]
    reading += ["open('/etc/passwd')", "open('/proc/sys/kernel/hostname', 'w')", f"os.listdir({str(Path.home())!r} + '/.ssh')"]
    changing = [f"os.unlink({path})", f"os.truncate({path}, 0)", f"os.rename({path}, {path} + 'x')", f"os.chmod({path}, 0)"]
    changing += [f"mmap.mmap(os.open({path}, os.O_RDWR), 0)", f"os.mkfifo({path} + '.fifo')", "os.mkfifo('/fifo')"]
    changing += ["open('/tmp/x', 'w')", "open('x', 'w')", "os.mkdir('x')", "os.symlink('x', 'y')"]
    # Python's own files are there, for reading.
    changing += ["open(os.__file__, 'r+b')", "os.utime(os.__file__)", "os.chmod(os.__file__, 0o644)"]
    assert sandbox.run(attempts(*reading, *changing, before=UNDO)) == "passed"
    assert key.read_text() == "secret"
    assert [entry.name for entry in tmp_path.iterdir()] == ["id_ed25519"]


def test_no_other_process_is_seen_or_signalled(sandbox: Sandbox) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        reach = [f"os.kill({pid}, 9)" for pid in (other.pid, os.getpid())]
        reach += [f"os.pidfd_open({pid})" for pid in (other.pid, os.getpid())]
        reach += [f"open('/proc/{os.getpid()}/mem', 'r+b')"]
        assert sandbox.run(attempts(*reach, before=UNDO)) == "passed"
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[dict[str, socket.socket]]:
    """Sockets of this machine that programs might reach, by how a program would name their address."""
    unix, abstract = str(tmp_path / "socket"), f"\0midfill-{os.getpid()}"
    with ExitStack() as stack:
        tcp, named, unnamed = (
            stack.enter_context(socket.socket(family)) for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_UNIX)
        )
        for listener, address in ((tcp, ("127.0.0.1", 0)), (named, unix), (unnamed, abstract)):
            listener.bind(address)
            listener.listen()
            listener.setblocking(False)
        found = {f"AF_INET).connect({tcp.getsockname()!r}": tcp}
        yield found | {f"AF_UNIX).connect({unix!r}": named, f"AF_UNIX).connect({abstract!r}": unnamed}


def test_no_connection_is_made(sandbox: Sandbox, listeners: dict[str, socket.socket]) -> None:
    calls = [f"socket.socket(socket.{call})" for call in listeners]
    assert sandbox.run(attempts(*calls, before=UNDO)) == "passed"
    for listener in listeners.values():
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_environment_and_folder_are_empty(any_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "known")
    assert any_sandbox.run("import os\nassert 'A_SECRET' not in os.environ\nassert not os.path.exists('tests')") == "passed"


def test_no_process_outlives_its_judgement(sandbox: Sandbox) -> None:
    sandbox.run("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ndef f(): return 1", "assert f() == 2")
    assert not [child for child in psutil.Process().children(recursive=True) if "run_program" in " ".join(child.cmdline())]


def test_without_a_confinement_it_is_refused_and_what_does_not_hold_is_said() -> None:
    with pytest.raises(BadInput, match=r"cannot confine generated code .*a broken one.*--without-sandbox"):
        Sandbox(candidates=(BROKEN,))
    open_to_all = Sandbox(candidates=(BROKEN,), allow_unconfined=True)
    assert open_to_all.description.startswith("NOT CONFINED: the code can read, change and delete every file")
    assert open_to_all.run("def f(): return 1", "assert f() == 1") == "passed"


def test_its_description_says_what_holds(sandbox: Sandbox) -> None:
    assert sandbox.description.startswith(f"Confined by {sandbox.confinement.name}: no network, no files but")
    assert "256 MB" in sandbox.description
