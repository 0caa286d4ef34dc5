"""Regenerate every figure: papermill over the numbered notebooks, in order, resumable.

    python -m lib.reproduce --profile default [--only 03] [--fresh] [--set sparsity=0.6 --set languages=de,sw]

Exit code 0: done. 1: something failed while running. 2: what was asked for cannot be run.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from lib import lock
from lib.errors import InputError, exit_code
from lib.inputs import assets, tasks
from lib.paths import CACHE, FIGURES, OUTPUT, RESULTS, ROOT, shown
from lib.run import cluster, notebooks, plan, progress
from lib.study import Study

# For the processes that are started: glibc gives large tensors back to the system and clears them anew at every use.
# Keeping them makes scoring with a large vocabulary faster and changes no bit.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_TOP_PAD_": "500000000"}


def main(words: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code(lambda: run(_parser().parse_args(words)),
                     "what was computed is kept, and the same command goes on from there", notebooks.NotebookError)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lib.reproduce", description=__doc__.split("\n")[0])
    parser.add_argument("--profile", default="default", help="how much is computed (default: %(default)s)")
    parser.add_argument("--only", metavar="NN", help="only the notebooks whose name begins with this")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workers", metavar="N", type=_count, help="compute in N processes of this machine")
    where.add_argument("--scheduler", metavar="ADDRESS", help="compute on the workers of this Dask scheduler")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings",
                        help="override a setting of the profile; lists as a,b,c")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--redraw", action="store_true", help="draw from the published tables only, compute nothing")
    mode.add_argument("--publish", action="store_true", help="write the run into the published tables")
    mode.add_argument("--plan", action="store_true", help="say what would be computed and what it needs, and stop")
    parser.add_argument("--fresh", action="store_true", help="do not take published cells as computed")
    return parser


def _count(word: str) -> int:
    if not word.isdecimal() or word == "0":
        raise argparse.ArgumentTypeError(f"{word!r} is no number of processes; give 1 or more")
    return int(word)


def run(arguments: argparse.Namespace) -> int:
    """Check everything, then run it."""
    overrides = parse_settings(arguments.settings)
    study = Study.load(arguments.profile, **overrides)
    if arguments.publish and (study.label != "published" or OUTPUT != ROOT):
        raise InputError("--publish writes the published tables of this checkout, so it goes with --profile published, "
                         "no --set, and without COMPENDIUM_OUTPUT")
    sets = study.calibration_sets()
    if study.methods and len(sets) < 2:
        raise InputError(f"the notebooks compare calibration languages, and there is only {', '.join(sets)}; give two "
                         "or more, for example --set calibrations=de,en. To prune in one: python -m lib.export")
    if arguments.redraw and arguments.fresh:
        raise InputError("--redraw computes nothing and --fresh computes everything anew; give one of them")
    todo = notebooks.sources(arguments.only)
    if not todo:
        raise InputError(f"--only {arguments.only}: no notebook begins so; there are "
                         f"{', '.join(p.stem for p in notebooks.sources())}")
    job = notebooks.Job(study, overrides, arguments.fresh, arguments.redraw)
    runs = CACHE / "runs"
    if arguments.plan:
        print(plan.text(plan.plan(study, arguments.fresh, arguments.only)))
        return 0
    check_writable([FIGURES / study.label, job.folder, runs, *([] if arguments.redraw else [runs / study.profile]),
                    *([RESULTS / "published"] if arguments.publish else [])])
    if not arguments.redraw:
        plan.refuse_if_too_large(plan.plan(study, arguments.fresh, arguments.only))
    for name, value in ALLOCATOR.items():
        os.environ.setdefault(name, value)
    with lock.held(runs / f".lock-{study.profile}", f"the run folder of profile {study.profile} in {OUTPUT}"), \
            cluster.started(arguments.workers, arguments.scheduler):
        return execute(job, todo, arguments)


def execute(job: notebooks.Job, todo: list[Path], arguments: argparse.Namespace) -> int:
    """Fetch what is needed, execute the notebooks, report; the caller holds the run folder's lock."""
    study = job.study
    if arguments.redraw:
        os.environ["COMPENDIUM_REDRAW"] = "1"
    else:
        fetch_assets(study)
    start = time.monotonic()
    seconds = execute_all(job, todo)
    whole = progress.minutes(time.monotonic() - start)
    for source in todo:
        for path in notebooks.figures_of(study, source):
            print(shown(path))
    print(f"{len(todo)} notebooks in {whole}"
          + "".join(f"\n  {name}  {progress.minutes(s)}" for name, s in seconds.items()))
    if arguments.publish:
        from lib.run import publish

        publish.publish(study, arguments.fresh)
    elif not arguments.redraw:
        from lib.run import compare

        print(compare.report(study))
    return 0


def execute_all(job: notebooks.Job, todo: list[Path]) -> dict[str, float]:
    """Execute the notebooks that are not up to date; seconds by name of those that were run. To redraw, which is a
    single processor's work and needs no other notebook, two go side by side."""
    def one(k: int, source: Path) -> float | None:
        head = f"[{k}/{len(todo)}] {source.stem}"
        if notebooks.unchanged(job, source):
            print(f"{head}: nothing has changed since it was executed", flush=True)
            return None
        print(f"{head} ...", flush=True)
        return notebooks.execute(job, source)

    with notebooks.Follower(CACHE / "runs" / job.study.profile / "progress.log"):
        if job.redraw:
            with ThreadPoolExecutor(2) as pool:  # one that fails ends those that have not begun
                seconds = list(pool.map(one, count(1), todo))
        else:
            seconds = list(map(one, count(1), todo))
    return {source.stem: s for source, s in zip(todo, seconds, strict=True) if s is not None}


def parse_settings(settings: list[str]) -> dict[str, str]:
    """["sparsity=0.6"] -> {"sparsity": "0.6"}."""
    pairs = [setting.partition("=") for setting in settings]
    for key, sign, _ in pairs:
        if not sign:
            raise InputError(f"--set {key}: write it as KEY=VALUE, for example --set sparsity=0.6")
    return {key: value for key, _, value in pairs}


def check_writable(folders: list[Path]) -> None:
    """Raise InputError for the first folder in which no file can be made."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(f"the folder {folder} cannot be written to ({error.strerror}); make it writable, or let "
                             "COMPENDIUM_OUTPUT name a folder that is") from None


def fetch_assets(study: Study) -> None:
    """Download and verify what the study reads, before any notebook starts."""
    wanted = {*study.models, study.calibration_corpus, *study.evaluation_corpora}
    wanted |= {name for task in study.task_items() if task in tasks.TASKS for name in tasks.TASKS[task].assets}
    for name in sorted(wanted & set(assets.names())):
        assets.fetch(name)


if __name__ == "__main__":
    sys.exit(main())
