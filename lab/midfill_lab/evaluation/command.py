"""The command `midfill eval`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from midfill.console import open_console
from midfill.options import check_writable, chosen, takes_options, takes_settings
from protocol.errors import BadInput
from protocol.messages import MAX_ALTERNATIVES
from protocol.settings import Settings

if TYPE_CHECKING:
    from lsp_server.prompts.anchors import WindowBudget
    from midfill_lab.evaluation.runner import Evaluated, TaskSet
    from midfill_lab.evaluation.sandbox import Sandbox
    from midfill_lab.evaluation.tasks import Split

SETTINGS = (
    "model", "device", "dtype", "weights", "core", "core_token", "fim_format", "prefix_tokens", "suffix_tokens",
    "exact", "other_files_tokens", "engine", "engine_key",
)  # fmt: skip
HELD_OUT_TASKS = 500  # without --limit
FIDELITY_PLACES = 300  # of each language and kind, without --limit


@dataclass(frozen=True, kw_only=True)
class EvalArguments:
    """The options of `midfill eval`, besides settings."""

    human_eval: Annotated[
        Path | None, typer.Option("--human-eval", help="File of HumanEval-Infilling (.jsonl.gz), or the folder with its files.")
    ] = None
    held_out: Annotated[
        list[Path] | None,
        typer.Option("--held-out", help="Folder of Python files that the model was not trained on; repeatable."),
    ] = None
    cross_file: Annotated[
        bool,
        typer.Option(
            "--cross-file",
            help="Lines of published packages that use a symbol of another file, without context and with each source.",
        ),
    ] = False
    fidelity: Annotated[
        bool,
        typer.Option(
            "--fidelity",
            help="Does what a model writes reach the document unharmed? For the folders of source files, or files of "
            "cases, in PATHS. Needs no model.",
        ),
    ] = False
    next_edit: Annotated[
        Path | None,
        typer.Option("--next-edit", help="Scenarios (a folder of .txtar), or a recorded session: which edit is next?"),
    ] = None
    answers: Annotated[
        str | None, typer.Option("--answers", help="With --next-edit: score what was recorded of this model, and load none.")
    ] = None
    next_edit_format: Annotated[
        str | None, typer.Option("--next-edit-format", help="zeta-2, zeta-2.1, sweep-a or sweep-b; else by the model's name.")
    ] = None
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[PATHS]...", help="Of --fidelity.", show_default=False)] = None
    paper: Annotated[
        bool,
        typer.Option("--paper", help="pass@1 with FIM and EFIM prompts by the protocol of the EFIM paper (arXiv 2505.21889)."),
    ] = False
    models: Annotated[
        str, typer.Option("--models", help="Of --paper, comma separated, one after another.", show_default="--model")
    ] = ""
    packages: Annotated[
        Path | None, typer.Option("--packages", help="Keep those packages in this folder, not in the user's cache.")
    ] = None
    splits: Annotated[
        str,
        typer.Option("--split", help="Kinds of tasks, comma separated: single-line, multi-line, random-span, random-span-light."),
    ] = "single-line,random-span"
    formats: Annotated[str, typer.Option("--format", help="Prompt formats, comma separated: psm, spm, efim.")] = "psm,spm,efim"
    cuts: Annotated[str, typer.Option("--cut", help="Cursor places, comma separated: given, token, character.")] = "character"
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of tasks per split, drawn by the seed.")] = None
    seed: Annotated[int, typer.Option(help="Seed for the choice of tasks and cuts.")] = 0
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Token limit for a completion.")] = 256
    alternatives: Annotated[
        int, typer.Option(min=0, max=MAX_ALTERNATIVES, help="Alternatives to ask for: how often is one of the texts right?")
    ] = 0
    best_of: Annotated[
        int,
        typer.Option(min=1, max=MAX_ALTERNATIVES + 1, help="Texts of which the completion is the one that fits the suffix best."),
    ] = 1
    short: Annotated[
        bool, typer.Option("--short", help="Ask with short prompts, as the core does where nothing is resident yet.")
    ] = False
    healing: Annotated[
        Literal["auto", "on", "off"], typer.Option(help="Token healing (efim); auto: on, unless the checkpoint needs none.")
    ] = "auto"
    allow_code_execution: Annotated[
        bool, typer.Option("--allow-code-execution", help="Run the benchmark's tests on generated code (pass@1).")
    ] = False
    without_sandbox: Annotated[
        bool, typer.Option("--without-sandbox", help="Run generated code even if this machine cannot confine it.")
    ] = False
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write one JSON object per row to this file; - for stdout.")
    ] = None

    resume: Annotated[
        bool, typer.Option(help="With --cross-file: keep the tasks in the file of --json, of a run with the same options.")
    ] = False

    @property
    def console(self) -> Console:
        """Where the report goes; stdout may be taken by the rows."""
        return open_console(stderr=self.json_file == Path("-"))


@takes_options
def eval_command(settings: Settings, arguments: EvalArguments) -> None:
    """Measure how well a model fills in code.

    Prints one row per kind of task, prompt format and cursor place. pass@1 needs --allow-code-execution, since it
    runs code that the model has written. --cross-file is an evaluation of its own: it downloads pinned packages with
    pip and npm once, and takes --limit (per language), --seed, --max-new-tokens, --best-of, --healing and --json. So is
    --fidelity, which plays the author's text as the model's, and takes --limit (per language and kind of place), --seed
    and --json; and so is --paper, which takes --human-eval, --models, --limit, --seed and --json, and runs code.
    --next-edit scores edits anywhere in a document, as answered and through the gate; it takes --answers,
    --next-edit-format and --json, and for a recorded session --limit (pauses) and --seed.
    """
    if arguments.next_edit is not None:
        _evaluate_next_edit(settings, arguments.next_edit, arguments)
        return
    if arguments.fidelity:
        _evaluate_fidelity(settings, arguments)
        return
    if arguments.paths:
        raise BadInput(f"{arguments.paths[0]} is for --fidelity alone")
    if arguments.paper:
        _evaluate_paper(settings, arguments)
        return
    from midfill_lab.evaluation.runner import Asking, core_by_address, engine_in_process

    if arguments.resume and not (arguments.cross_file and arguments.json_file not in (None, Path("-"))):
        raise BadInput("--resume goes on with the file of --json, and only with --cross-file")
    if arguments.cross_file and arguments.alternatives:
        raise BadInput("--cross-file scores completions alone: leave out --alternatives")
    if arguments.short and settings.core:
        raise BadInput("--short needs the model's tokenizer, which a core does not show: leave it out")
    asking = Asking(arguments.max_new_tokens, arguments.alternatives, arguments.best_of, arguments.short)
    model = core_by_address(settings, asking) if settings.core else engine_in_process(settings, arguments.healing, asking)
    evaluate = _evaluate_cross_file if arguments.cross_file else _evaluate_in_file
    evaluate(settings, model, arguments)


command = takes_settings(eval_command, only=SETTINGS)


def _evaluate_in_file(settings: Settings, model: AbstractContextManager[Evaluated], arguments: EvalArguments) -> None:
    """A table of every split, cut and format, and each row as JSON."""
    from midfill_lab.evaluation.runner import Evaluator, report, row_object
    from midfill_lab.evaluation.tasks import CUTS, FORMATS, SPLITS

    splits = chosen("--split", arguments.splits, SPLITS)
    formats, cuts = chosen("--format", arguments.formats, FORMATS), chosen("--cut", arguments.cuts, CUTS)
    task_sets = _task_sets(arguments, splits)
    notes = open_console(stderr=True)
    sandbox = _sandbox(arguments, task_sets, notes)
    if settings.core and "token" in cuts:
        raise BadInput("--cut token needs the model's tokenizer, which a core does not show: choose given or character")
    rows = []
    with _json_lines(arguments.json_file) as write, _loaded(model, notes) as evaluated, _bars(notes) as progress:
        common = {
            "model": evaluated.name,
            "seed": arguments.seed,
            "max_new_tokens": arguments.max_new_tokens,
            "alternatives": arguments.alternatives,
            "best_of": arguments.best_of,
            "short": arguments.short,
        }
        budget = _windows(settings, evaluated)
        evaluator = Evaluator(
            evaluated.complete, evaluated.token_ends, budget, arguments.seed, sandbox, arguments.alternatives > 0
        )
        for tasks, cut, form in product(task_sets, cuts, formats):
            bar = progress.add_task(f"{tasks.benchmark} {tasks.split} {cut} {form}", total=len(tasks.tasks))
            rows.append(evaluator.row(tasks, cut, form, partial(progress.advance, bar)))
            write(row_object(rows[-1], evaluated.heals, common))
    arguments.console.print(report(rows, evaluated.title))


@contextmanager
def _loaded(model: AbstractContextManager[Evaluated], notes: Console) -> Iterator[Evaluated]:
    """The model, with a note while it is loaded."""
    with ExitStack() as stack:
        with notes.status("loading the model"):
            evaluated = stack.enter_context(model)
        yield evaluated


def _evaluate_cross_file(settings: Settings, model: AbstractContextManager[Evaluated], arguments: EvalArguments) -> None:
    """A table of every condition for each language, and the outcomes of each task as JSON."""
    from midfill_lab.evaluation import cross_file
    from midfill_lab.evaluation.cross_file import CONDITIONS, Desk

    notes, seed = open_console(stderr=True), arguments.seed
    with notes.status("reading the packages") as status:
        tasks = cross_file.collect_tasks(arguments.packages, arguments.limit, seed, lambda name: status.update(f"reading {name}"))
    resumed = arguments.json_file if arguments.resume else None
    known = {} if resumed is None else cross_file.read_outcomes(resumed)
    scored = [(task, known[task.name]) for task in tasks if task.name in known]
    tasks = [task for task in tasks if task.name not in known]
    rows = _json_lines(arguments.json_file, keep=arguments.resume)
    with rows as write, _loaded(model, notes) as evaluated, _bars(notes) as progress:
        bar = progress.add_task("cross-file", total=len(tasks) * len(CONDITIONS))
        desk = Desk(seed, settings.other_files_tokens, _windows(settings, evaluated))
        for task, outcomes in cross_file.run(tasks, desk, evaluated.complete, partial(progress.advance, bar)):
            write(cross_file.task_object(task, outcomes))
            scored.append((task, outcomes))
        desk.close()
    title = f"{evaluated.title}, {settings.other_files_tokens} tokens of other files"
    arguments.console.print(cross_file.report(cross_file.rows(scored), title))


def _evaluate_fidelity(settings: Settings, arguments: EvalArguments) -> None:
    """A table of what became of the text by language and kind of place, and each place as JSON."""
    from midfill_lab.evaluation.fidelity import count, places_in, play, read_cases, row_object, table

    notes, paths, seed = open_console(stderr=True), arguments.paths or [], arguments.seed
    if not paths:
        raise BadInput("--fidelity takes folders of source files, or files of cases: give one at least")
    folders = [path for path in paths if not path.is_file()]
    places = [case for path in paths if path.is_file() for case in read_cases(path)]
    places += places_in(folders, arguments.limit or FIDELITY_PLACES, seed) if folders else []
    found = []
    with _json_lines(arguments.json_file) as write, _bars(notes) as progress:
        bar = progress.add_task("fidelity", total=len(places))
        for place, accepted, said in play(places, settings):
            write(row_object(place, accepted, said))
            found.append((place, said))
            progress.advance(bar)
    arguments.console.print(table(count(found)))


def _evaluate_next_edit(settings: Settings, folder: Path, arguments: EvalArguments) -> None:
    """A table of the figures before and behind the gate, why nothing was shown, and each outcome as JSON."""
    from lsp_server.next_edit.families import format_named, format_of_model
    from midfill_lab.evaluation.next_edit import evaluate, reasons, replies_of, replies_recorded, row_object, table
    from midfill_lab.evaluation.runner import Asking, core_by_address, engine_in_process
    from midfill_lab.evaluation.scenarios import read_scenarios
    from midfill_lab.evaluation.sessions import scenarios_in

    notes, wanted = open_console(stderr=True), arguments.next_edit_format
    if folder.is_dir():
        scenarios = read_scenarios(folder)
    elif arguments.answers is None:
        scenarios = scenarios_in(folder, arguments.limit, arguments.seed)
    else:
        raise BadInput(f"--answers is for a folder of scenarios, and {folder} is none")
    with ExitStack() as stack:
        if arguments.answers is not None:
            reply, title = replies_recorded(folder, arguments.answers), f"answers of {arguments.answers}"
        else:
            asking = Asking(arguments.max_new_tokens)
            model = core_by_address(settings, asking) if settings.core else engine_in_process(settings, "off", asking)
            layout = format_named(wanted) if wanted else format_of_model(settings.model)
            evaluated = stack.enter_context(_loaded(model, notes))
            reply, title = replies_of(evaluated.answer, layout), f"{evaluated.title}, {layout.name}"
        write = stack.enter_context(_json_lines(arguments.json_file))
        progress = stack.enter_context(_bars(notes))
        bar = progress.add_task("next-edit", total=sum(len(scenario.cursors) for scenario in scenarios))
        found = evaluate(scenarios, reply, partial(progress.advance, bar))
        for stage, outcomes in found.items():
            for outcome in outcomes:
                write(row_object(stage, outcome))
    arguments.console.print(table(found, title))
    for reason, count in reasons(found["through the gate"]).most_common():
        arguments.console.print(f"{count:4} silent: {reason}", highlight=False)


def _evaluate_paper(settings: Settings, arguments: EvalArguments) -> None:
    """A table of pass@1 by model, layout and split, and each figure as JSON."""
    from midfill_lab.evaluation.paper import LAYOUTS, SPLITS, PaperEvaluator, report
    from midfill_lab.evaluation.runner import opened

    if settings.core or not arguments.allow_code_execution:
        raise BadInput("--paper measures pass@1, on an engine: give --allow-code-execution, and no --core")
    notes = open_console(stderr=True)
    task_sets = _task_sets(replace(arguments, held_out=None), SPLITS)
    sandbox = _sandbox(arguments, task_sets, notes)
    assert sandbox is not None  # the benchmark has tests
    rows = []
    with _json_lines(arguments.json_file) as write:
        for model in filter(None, map(str.strip, (arguments.models or settings.model).split(","))):
            with opened(replace(settings, model=model), "off") as engine, _bars(notes) as progress:
                evaluator = PaperEvaluator(model, engine, sandbox, arguments.seed)
                for layout, tasks in product(LAYOUTS, task_sets):
                    bar = progress.add_task(f"{model} {layout} {tasks.split}", total=len(tasks.tasks))
                    rows.append(evaluator.row(tasks, layout, partial(progress.advance, bar)))
                    write(rows[-1].as_json())
    arguments.console.print(report(rows))


def _bars(notes: Console) -> Progress:
    """Bars on stderr, if that is a terminal."""
    columns = (TextColumn("{task.description:42}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=notes, disable=not notes.is_terminal)


@contextmanager
def _json_lines(file: Path | None, *, keep: bool = False) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that writes each object at once, so that an aborted run keeps its rows; opens the file first.

    With `keep`, the rows that the file has stay, but for a torn last one.
    """
    if file is None:
        yield lambda _: None
    elif file == Path("-"):
        yield lambda row: typer.echo(json.dumps(row))
    else:
        check_writable(file)
        if keep:
            os.truncate(file, file.read_bytes().rfind(b"\n") + 1)
        with file.open("a" if keep else "w", encoding="utf-8", buffering=1) as stream:
            yield lambda row: print(json.dumps(row), file=stream)


def _task_sets(arguments: EvalArguments, splits: Sequence[Split]) -> list[TaskSet]:
    from midfill_lab.evaluation.runner import TaskSet
    from midfill_lab.evaluation.tasks import cut_files, read_benchmark

    human_eval, held_out, limit, seed = arguments.human_eval, arguments.held_out, arguments.limit, arguments.seed
    if human_eval is None and not held_out:
        raise BadInput("no tasks: give --human-eval or --held-out, or choose --cross-file, --fidelity or --next-edit")
    sets = []
    if human_eval is not None:
        tasks = read_benchmark(human_eval, as_published=arguments.paper)
        found = [TaskSet("human-eval-infilling", split, tuple(tasks[split])) for split in splits if split in tasks]
        if not found:
            raise BadInput(f"{human_eval} has no tasks of --split {','.join(splits)}")
        sets += [tasks.sample(limit, seed) for tasks in found]
    if held_out and "random-span-light" in splits:
        raise BadInput("--held-out has no --split random-span-light: it is a part of the benchmark. Choose random-span")
    if held_out:
        count = HELD_OUT_TASKS if limit is None else limit
        sets += [TaskSet("held-out", split, tuple(cut_files(held_out, split, count, seed))) for split in splits]
    return sets


def _sandbox(arguments: EvalArguments, task_sets: Sequence[TaskSet], notes: Console) -> Sandbox | None:
    """The sandbox, if code may run and there are tests; prints its confinement, or why pass@1 is left out."""
    if not any(task.test for tasks in task_sets for task in tasks.tasks):
        return None
    if not arguments.allow_code_execution:
        notes.print("skipping pass@1, which runs generated code: allow it with --allow-code-execution")
        return None
    from midfill_lab.evaluation.sandbox import Sandbox

    sandbox = Sandbox(allow_unconfined=arguments.without_sandbox)
    notes.print(f"This command runs generated code on this machine. {sandbox.description}.", highlight=False)
    return sandbox


def _windows(settings: Settings, evaluated: Evaluated) -> WindowBudget:
    from lsp_server.prompts.anchors import WindowBudget

    return WindowBudget(
        prefix_tokens=settings.prefix_tokens, suffix_tokens=settings.suffix_tokens, chars_per_token=evaluated.chars_per_token
    )
