"""The two child processes of one judgement: the candidate runs a program, the examiner tests it from outside.

`midfill_lab.evaluation.sandbox` passes this file to `python -c`, so it needs nothing but the standard library. Standard
input holds a request (JSON). The candidate runs the program and answers calls on a socket; the examiner runs the tests,
whose calls go over that socket, and writes `VERDICT` to standard output if they raise nothing. Values cross as pickles
that hold plain data only. The program shares no process with the tests, so nothing that it does there can pass them.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable
from io import BufferedRWPair
from typing import Any

VERDICT = b"passed"
_NOBODY = 65534
_PLAIN = {
    "builtins": {"bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "range", "set"}
    | {"str", "tuple"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
}

# From linux/prctl.h and linux/capability.h; the same on every architecture.
_SET_NO_NEW_PRIVILEGES, _CAPABILITY_VERSION = 38, 0x20080522


class PlainUnpickler(pickle.Unpickler):
    """Reads values of built-in and collection types; refuses a pickle that names anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _PLAIN.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is not plain data")
        return super().find_class(module, name)


class _System:
    """System calls that Python has no name for; OSError with the call's name where one fails."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self._libc, name)

        def call(*arguments: Any) -> None:
            if function(*arguments) < 0:
                raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

        return call


def drop_privileges() -> None:
    """Become the user `nobody` if the process is root, and give up all capabilities for good."""
    system = _System()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    system.prctl(_SET_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    system.capset(header, none)


def limit(cpu_seconds: int, wall_seconds: int, memory_bytes: int) -> None:
    """Set the limits of time, memory, open files, new processes (none) and the size of written files (0)."""
    # The hard limit is one second later: at the soft one the kernel sends SIGXCPU, at the hard one SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    # Ends a sleeping program even if the parent was killed before it could.
    signal.alarm(wall_seconds + 1)


def run_program(program: str, channel: BufferedRWPair) -> None:
    """The candidate: run the program, report the names of its functions, and answer calls until the channel closes."""
    namespace: dict[str, Any] = {"__name__": "completion"}
    exec(compile(program, "<completion>", "exec"), namespace)
    _send(channel, [name for name, value in namespace.items() if callable(value)])
    while True:
        try:
            name, arguments, keywords = pickle.load(channel)
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, namespace[name](*arguments, **keywords)))
        except Exception as error:  # noqa: BLE001 - the program's own, which the examiner raises again
            answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        channel.write(answer)
        channel.flush()


def run_tests(tests: str, channel: BufferedRWPair) -> None:
    """The examiner: run the tests against stand-ins for the program's functions; raises what the tests raise."""
    names = PlainUnpickler(channel).load()
    # What the tests take from Python stays Python's: a program's own `abs` could pass them.
    namespace = {str(name): _remote(str(name), channel) for name in names if not hasattr(builtins, str(name))}
    exec(compile(tests, "<tests>", "exec"), {**namespace, "__name__": "tests"})


def _remote(name: str, channel: BufferedRWPair) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        _send(channel, (name, arguments, keywords))
        returned, value = PlainUnpickler(channel).load()
        if returned is not True:
            raise RuntimeError(value)
        return value

    return call


def _send(channel: BufferedRWPair, value: object) -> None:
    pickle.dump(value, channel)
    channel.flush()


def main() -> None:
    """Run the part that the request on standard input names."""
    request = json.load(sys.stdin)
    if request["drop"]:
        drop_privileges()
    channel = socket.socket(fileno=request["channel"]).makefile("rwb")
    limit(request["cpu_seconds"], request["wall_seconds"], request["memory_bytes"])
    if request["part"] == "candidate":
        run_program(request["text"], channel)
    else:
        run_tests(request["text"], channel)
        os.write(1, VERDICT)


if __name__ == "__main__":
    main()
