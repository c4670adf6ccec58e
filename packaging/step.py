"""Runs one step of an installation or a build: one line with what it is about and its progress, its output in a file.

    python packaging/step.py LOG LABEL COMMAND [ARGUMENT ...]

A terminal has the line redrawn; elsewhere large downloads get a line each, and so does what is being done after 15, 30,
60 seconds and so on. If the command fails, its last lines are shown, with the name of the file that has them all. Needs
nothing but Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO

_REDRAW_S = 0.5
_FIRST_NEWS_S = 15.0
_LARGE_MB = 20.0
_SHOWN_LINES = 25  # of a failed command

_DOWNLOAD = re.compile(r"\s*(?:Downloading|Using cached) (\S+?)(?:\.metadata)? \(([\d.]+) ?([kKMG])i?B\)")
_BYTES = re.compile(r"Progress (\d+) of (\d+)$")  # pip's, with --progress-bar raw
_TOLD = (
    (re.compile(r"\s*Collecting (\S+)"), r"looking for \1"),
    (re.compile(r"Resolved \d+ packages.*"), "downloading"),  # uv's, as the next two
    (re.compile(r"\s*Building (\S+) @ .*"), r"building \1"),
    (re.compile(r"Prepared \d+ packages.*"), "unpacking the packages"),
    (re.compile(r"\s*Building editable for midfill .*started"), "compiling midfill's kernel"),
    (re.compile(r"\s*Building (?:editable|wheel) for (\S+).*started"), r"building \1"),
    (re.compile(r"Installing collected packages: .*"), "unpacking the packages"),
    (re.compile(r"running build_ext"), "compiling midfill's kernel"),
    (re.compile(r"running (sdist|bdist_wheel)"), "packing what was built"),
)
_MEGABYTES = {"k": 1e-3, "K": 1e-3, "M": 1.0, "G": 1e3}


class Progress:
    """What a command is doing, by its output; `large` is set when a large download begins."""

    def __init__(self) -> None:
        self.doing = ""
        self.large = ""
        self._file = ""

    def read(self, line: str) -> None:
        """Take note of a line of output."""
        if found := _BYTES.fullmatch(line):
            done, whole = map(int, found.groups())
            self.doing = f"{self._file}: {100 * done // max(1, whole)} %"
        elif found := _DOWNLOAD.match(line):
            name, size = found[1].rpartition("/")[2], float(found[2]) * _MEGABYTES[found[3]]
            self._file = self.doing = f"downloading {name} ({size:.0f} MB)" if size >= 1 else f"downloading {name}"
            if size >= _LARGE_MB and not line.lstrip().startswith("Using"):
                self.large = self.doing
        else:
            for pattern, told in _TOLD:
                if found := pattern.match(line):
                    self.doing = found.expand(told)
                    break


class Display:
    """The step's line, on a terminal or in a log."""

    def __init__(self, out: TextIO, label: str) -> None:
        self._out = out
        self._label = label
        self._live = out.isatty()
        self._began = time.monotonic()
        self._news_s = _FIRST_NEWS_S
        self._broken = False  # whether lines of progress have followed the label
        self._write(f"{label} ...")

    def tell(self, progress: Progress) -> None:
        """Show what is being done, if it is time."""
        passed = time.monotonic() - self._began
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\033[K{f'{self._label} ... {passed:.0f} s  {progress.doing}'[:width]}")
        elif progress.large or passed > self._news_s:
            self._news_s *= 1 if progress.large else 2
            self._broken = True
            self._write(f"\n  {passed:.0f} s: {progress.large or progress.doing or 'at work'}")
            progress.large = ""

    def end(self, status: int) -> None:
        """Close the line."""
        seconds = f"{time.monotonic() - self._began:.0f} s"
        told = f"done in {seconds}" if status == 0 else f"failed after {seconds}"
        head = f"\r\033[K{self._label} ..." if self._live else "\n " if self._broken else ""
        self._write(f"{head} {told}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def run(log: Path, label: str, command: list[str], out: TextIO) -> int:
    """Run the command, show its progress on `out`, append its output to `log`; its exit status."""
    log.parent.mkdir(parents=True, exist_ok=True)
    progress, last = Progress(), []
    display = Display(out, label)
    with log.open("ab") as written:
        written.write(f"$ {' '.join(command)}\n".encode())
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            display.end(127)
            out.write(f"{command[0]}: {error.strerror}\n")
            return 127
        ended = threading.Event()
        teller = threading.Thread(target=_tell_until, args=(ended, display, progress))
        teller.start()
        try:
            assert process.stdout is not None
            for line in _lines(process.stdout):
                progress.read(line)
                if not _BYTES.fullmatch(line):
                    written.write(f"{line}\n".encode())
                    last = [*last[1 - _SHOWN_LINES :], line]
            status = process.wait()
        except KeyboardInterrupt:
            process.wait()  # the terminal has interrupted it too
            status = 130
        finally:
            ended.set()
            teller.join()
    display.end(status)
    if status:
        out.writelines(f"    {line}\n" for line in last)
        out.write(f"The whole output is in {log}\n")
    return status


def _tell_until(ended: threading.Event, display: Display, progress: Progress) -> None:
    while not ended.wait(_REDRAW_S):
        display.tell(progress)


def _lines(output: IO[bytes]) -> Iterator[str]:
    """The lines of the output, of those redrawn in place every version."""
    for line in output:
        for part in re.split(rb"[\r\n]+", line):
            if part.strip():
                yield part.decode(errors="replace")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")  # a Python's own lines, as they come
    sys.exit(run(Path(sys.argv[1]), sys.argv[2], sys.argv[3:], sys.stderr))
