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

# From linux/sched.h, sys/mount.h, linux/mount.h, linux/prctl.h; the same on every architecture.
_NEW_MOUNTS, _NEW_HOST_NAME, _NEW_IPC, _NEW_USER, _NEW_PIDS, _NEW_NETWORK = (1 << bit for bit in (17, 26, 27, 28, 29, 30))
_BIND, _RECURSIVE, _PRIVATE = 1 << 12, 1 << 14, 1 << 18
_SYS_MOUNT_SETATTR, _AT_CURRENT_FOLDER, _AT_RECURSIVE, _READ_ONLY_NO_SUID_NO_DEVICES = 442, -100, 0x8000, 7
_SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES, _CAPABILITY_VERSION = 1, 38, 0x20080522


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


def enter_namespaces(visible: list[str], root: str) -> None:
    """Leave the machine's files, processes and network: only `visible` stays, read-only, under a new root.

    Returns in a process of the new namespaces; `root` is an empty folder to mount on. OSError if the kernel refuses.
    """
    system, user, group = _System(), os.geteuid(), os.getegid()
    system.unshare(_NEW_MOUNTS | _NEW_HOST_NAME | _NEW_IPC | _NEW_PIDS | _NEW_NETWORK | (_NEW_USER if user != 0 else 0))
    if user != 0:
        for file, text in (("uid_map", f"{user} {user} 1"), ("setgroups", "deny"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{file}", "w") as stream:  # noqa: PTH123 - pathlib would be one more import
                stream.write(text)
    system.mount(None, b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)
    system.mount(b"tmpfs", root.encode(), b"tmpfs", ctypes.c_ulong(0), None)
    for folder in visible:
        place = root + folder
        os.makedirs(place, exist_ok=True)  # noqa: PTH103
        system.mount(folder.encode(), place.encode(), None, ctypes.c_ulong(_BIND | _RECURSIVE), None)
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY_NO_SUID_NO_DEVICES)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    system.syscall(ctypes.c_long(_SYS_MOUNT_SETATTR), _AT_CURRENT_FOLDER, root.encode(), _AT_RECURSIVE, attributes, size)
    os.chroot(root)
    os.chdir("/")
    # The first process of a PID namespace ignores the signals of its limits, so a second one runs the program.
    for _ in range(2):
        _continue_in_child(system)


def _continue_in_child(system: _System) -> None:
    """Fork; the parent waits and ends with the child's status, 128 and the signal for one that a signal ended."""
    child = os.fork()
    if child == 0:
        system.prctl(_SET_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL))
        return
    os.closerange(0, 64)  # the other side has to notice when the child's ends of pipe and socket close
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


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
    if request["confine"]:
        enter_namespaces(request["visible"], request["root"])
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
