"""Trains on a GPU that is lent for minutes, to a deadline, and leaves weights in parts that fit through transfers.

    python bench/gpu_train.py CORPUS --base BASE --output OUT --deadline 560

CORPUS and BASE are folders, BASE may be a GGUF file, and both may be packed (`python -m midfill_lab.recipe pack`).
Without --base, random weights of --shape are trained. It needs no network, and beside this repository torch,
transformers, numpy, msgspec, tokenizers, safetensors, and for GGUF files gguf.

The plan, in seconds from the start:

    0           processes begin to unpack, to make windows, and to choose held-out lines
    10 to 60    the model is loaded; the first forward, which measures these lines, compiles a layer
    to D - R    training: D is the --deadline, R the --reserve; the rate falls by this clock, and reaches 0 in time.
                Below --least-speed tokens a second after ten steps the layers are not compiled any more.
    to D        the lines are measured again, the weights are packed

OUT has, and if the run is cut off keeps:

    log.jsonl   a line for each step and each measurement, written at once
    weights-N/  bfloat16 weights after step N, packed; the last ones that are complete, every --part-minutes

A run to look at speed and memory is the same with --deadline 90 and --profile, which writes the times of kernels to
kernels.txt; --caches FOLDER keeps what was compiled for the next run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

MIB = 2**20
CHECKED_STEPS = 10
PROFILED_STEP = 15
SPARED_CORES = 2
EXAMPLES: dict[str, Any] = {
    "fim_rate": 0.9,
    "efim_rate": 0.5,
    "spm_rate": 0.2,
    "fragment_rate": 0.6,
    "context_fragment_rate": 0.24,
    "shortest_fragment": 2,
    "longest_fragment": 64,
    "snippet_rate": 0.15,
    "symbol_rate": 0.1,
    "later_name_rate": 0.2,
}
"""The recipe, as `ExampleOptions`: all layouts, short fragments, and loss on prompts too."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, help="a corpus with a train and a held_out split, or its parts")
    add("--base", type=Path, help="a model's folder, its parts, or a GGUF file; default: random weights")
    add("--shape", choices=("135m", "tiny"), default="135m", help="of random weights")
    add("--output", type=Path, required=True)
    add("--deadline", type=float, required=True, help="seconds from the start at which everything is written")
    add("--reserve", type=float, default=45, help="seconds of these for what comes after training")
    add("--lr", type=float, default=8e-4)
    add("--decay", type=float, default=0.6, help="share of the run in which the rate falls")
    add("--stages", default="1024:0.6,4096:0.4", help="WINDOW:SHARE,...; windows are multiples of 128")
    add("--step-tokens", type=int, default=131_072)
    add("--micro-tokens", type=int, default=65_536, help="of them in memory at a time; halved if they do not fit")
    add("--least-speed", type=float, default=60_000, help="tokens a second below which nothing is compiled")
    add("--part-minutes", type=float, default=2.5, help="time between the weights that are written")
    add("--lines", type=int, default=2000, help="held-out lines that are measured before and after")
    add("--makers", type=int, default=None, help="processes that make windows; default: all cores but two")
    add("--caches", type=Path, help="folder for compiled code, kept for the next run")
    add("--profile", action="store_true", help="write the times of kernels in a step to kernels.txt")
    add("--cpu", action="store_true", help="use no GPU, to try the script")
    add("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with the options of the command line; the exit status."""
    began = time.monotonic()
    given = parse(arguments)
    if given.caches is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(given.caches.resolve() / "inductor")
        os.environ["TRITON_CACHE_DIR"] = str(given.caches.resolve() / "triton")
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-train-") as work:
        Run(given, Path(work), began).run()
    return 0


class Run:
    """One run: its log, its clock, and what it has written."""

    def __init__(self, given: argparse.Namespace, work: Path, began: float) -> None:
        self._given, self._work, self._began = given, work, began
        self._packing: Future[None] | None = None
        self._packed_at = 0.0

    def run(self) -> None:
        from midfill_lab.training.windows import WindowMakers, WindowSource

        given = self._given
        corpus, base = self._inputs()
        options = self._options(base)
        source = WindowSource(corpus, options.examples, options.seed)
        makers = max(1, (os.cpu_count() or 1) - SPARED_CORES) if given.makers is None else given.makers
        with WindowMakers(source, makers) as windows, ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(1) as packer:
            for stage in options.stages:  # while the model is loaded
                share = options.batch_tokens // stage.window
                windows.begin(stage.window, 0, share, share)
            self.log(kind="windows begun", makers=makers)
            # Not imported by two threads at once, which transformers does not bear.
            from midfill_lab.training import losses, trainer
            from midfill_lab.training.machine import open_device

            self.log(kind="imported", modules=[losses.__name__, trainer.__name__])
            lines = beside.submit(self._lines, corpus, options)
            self._train(options, corpus, base, open_device(cpu=given.cpu), windows, lines, packer)

    def _train(self, options: Any, corpus: Path, base: Path | None, device: Any, windows: Any, lines: Any, packer: Any) -> None:
        import torch

        from midfill_lab.training.machine import this_machine
        from midfill_lab.training.trainer import RunFolder, StepReport, Trainer
        from midfill_lab.training.vocabulary import load_vocabulary

        given = self._given
        torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
        trainer = Trainer(RunFolder(self._work), corpus, load_vocabulary(corpus / "tokenizer.json"), options, device)
        self.log(kind="loaded", machine=this_machine(), parameters=sum(one.numel() for one in trainer.model.parameters()))
        self._measure(trainer, lines.result(), 0)
        seconds = given.deadline - given.reserve - self._elapsed()
        if seconds <= 0:
            self.log(kind="no time to train", short_by=-seconds)
            return
        trainer.end_in(seconds / 60)
        checks = Checks(self, trainer, given)

        def report(step: StepReport) -> None:
            self.log(kind="step", **asdict(step), memory_mib=_memory())
            checks.step(step)
            if self._elapsed() - self._packed_at >= 60 * given.part_minutes and self._is_packed():
                self._pack(trainer, base, step.progress.step, packer)

        self._packed_at = self._elapsed()
        trainer.run(report, lambda _: None, makers=windows)
        self._measure(trainer, lines.result(), trainer.progress.step)
        if self._packing is not None:
            self._packing.result()
        self._pack(trainer, base, trainer.progress.step, packer)
        assert self._packing is not None
        self._packing.result()
        progress = trainer.progress
        self.log(kind="end", steps=progress.step, tokens=progress.tokens, speed=progress.tokens / progress.seconds)

    def log(self, **record: Any) -> None:
        """Write a record to the log, and all but most steps to the terminal."""
        line = json.dumps({"at": round(self._elapsed(), 2), **record})
        with (self._given.output / "log.jsonl").open("a") as log:
            log.write(line + "\n")
        if record["kind"] != "step" or record["progress"]["step"] % 25 == 1:
            sys.stdout.write(line[:400] + "\n")
            sys.stdout.flush()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _unpacked(self, place: Path, name: str) -> Path:
        from midfill_lab.recipe.parts import INDEX, unpack

        if not (place / INDEX).is_file():
            return place
        unpack(place, self._work / name)
        self.log(kind="unpacked", what=name)
        return self._work / name

    def _inputs(self) -> tuple[Path, Path | None]:
        """The corpus, with the tokenizer of the model to start from, and that model's folder."""
        given = self._given
        corpus = self._unpacked(given.corpus, "corpus")
        if given.base is None:
            return corpus, None
        base = self._unpacked(given.base, "base") if given.base.is_dir() else given.base
        files = [base] if base.is_file() else sorted(base.glob("*.gguf"))
        if files:
            from midfill_lab.training.from_gguf import read_base

            base = self._work / "dequantized"
            read_base(files[0], base)
            self.log(kind="dequantized")
        tokenizer = (base / "tokenizer.json").read_bytes()
        if corpus == given.corpus:  # which stays as it is
            corpus = self._work / "corpus"
            shutil.copytree(given.corpus, corpus)
        (corpus / "tokenizer.json").write_bytes(tokenizer)
        return corpus, base

    def _options(self, base: Path | None) -> Any:
        """The recipe."""
        from midfill_lab.training.options import ExampleOptions, ModelSize, TrainingOptions, parse_stages

        given = self._given
        shapes = {"135m": ModelSize(30, 576, 1536, 9, 3, 64, 8192), "tiny": ModelSize(2, 64, 128, 2, 1, 32, 4096)}
        return TrainingOptions(
            shape=shapes[given.shape],
            start=None if base is None else str(base),
            examples=ExampleOptions(**EXAMPLES),
            stages=parse_stages(given.stages),
            batch_tokens=given.step_tokens,
            gradient_accumulation_steps=max(1, given.step_tokens // given.micro_tokens),
            lr=given.lr,
            muon_lr=None,
            warmup=0.0,
            warmup_steps=20,
            decay=given.decay,
            minutes=given.deadline / 60,
            checkpoint_minutes=math.inf,
            compile=not given.cpu,
            seed=given.seed,
        )

    def _lines(self, corpus: Path, options: Any) -> Any:
        from midfill_lab.training.corpus import Corpus
        from midfill_lab.training.losses import ExactLines, Shape
        from midfill_lab.training.vocabulary import load_vocabulary

        window = options.stages[0].window
        shape = Shape(max(1, self._given.micro_tokens // window), window)
        vocabulary = load_vocabulary(corpus / "tokenizer.json")
        return ExactLines(Corpus(corpus, "held_out"), vocabulary, self._given.lines, shape)

    def _measure(self, trainer: Any, lines: Any, step: int) -> None:
        asked = time.monotonic()
        with trainer.precision():
            shares = lines.shares(trainer.model)
        self.log(kind="exact", step=step, lines=lines.lines, seconds=time.monotonic() - asked, **shares)

    def _is_packed(self) -> bool:
        return self._packing is None or self._packing.done()

    def _pack(self, trainer: Any, base: Path | None, step: int, packer: Any) -> None:
        """Copy the weights from the device, and pack them beside the training."""
        import torch

        self._packed_at = self._elapsed()
        weights = {name: one.detach().to(torch.bfloat16).cpu() for name, one in trainer.trained.named.items()}
        self._packing = packer.submit(self._write, weights, trainer.model.config, base, step)

    def _write(self, weights: dict[str, Any], config: Any, base: Path | None, step: int) -> None:
        from safetensors.torch import save_file

        from midfill_lab.recipe.parts import pack

        folder, target = self._work / f"model-{step}", self._given.output / f"weights-{step}"
        folder.mkdir()
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            if base is not None and (base / name).is_file():
                shutil.copyfile(base / name, folder / name)
        if base is None:
            config.to_json_file(folder / "config.json")
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        shutil.rmtree(target, ignore_errors=True)
        index = pack(folder, target)
        shutil.rmtree(folder)
        for older in self._given.output.glob("weights-*"):
            if older != target:
                shutil.rmtree(older)
        self.log(kind="weights", step=step, parts=len(index.parts), bytes=sum(part.bytes for part in index.parts))


class Checks:
    """Watches the speed of the first steps, and the kernels of one of them."""

    def __init__(self, run: Run, trainer: Any, given: argparse.Namespace) -> None:
        self._run, self._trainer, self._given = run, trainer, given
        self._times: list[float] = []
        self._profiler: Any = None
        self._compiles = not given.cpu

    def step(self, step: Any) -> None:
        self._times.append(step.progress.seconds)
        if self._given.profile:
            self._profile(step.progress.step)
        if len(self._times) == CHECKED_STEPS + 1:  # without the first step, which compiles
            speed = CHECKED_STEPS * self._given.step_tokens / max(1e-9, self._times[-1] - self._times[0])
            self._run.log(kind="speed", tokens_per_second=speed, compiled=self._compiles)
            if speed < self._given.least_speed and self._compiles:
                self._trainer.stop_compiling()
                self._compiles = False
                self._times.clear()  # measure again

    def _profile(self, step: int) -> None:
        import torch

        if step == PROFILED_STEP - 1:
            self._profiler = torch.profiler.profile()
            self._profiler.start()
        elif step == PROFILED_STEP:
            self._profiler.stop()
            by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
            table = self._profiler.key_averages().table(sort_by=by, row_limit=60, max_name_column_width=80)
            (self._given.output / "kernels.txt").write_text(table)


def _memory() -> int:
    """The most MiB that tensors took on the GPU."""
    import torch

    return torch.cuda.max_memory_allocated() // MIB if torch.cuda.is_available() else 0


if __name__ == "__main__":
    raise SystemExit(main())
