"""Execute the numbered notebooks with papermill: in order, resumable, never half done under a final name."""

import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from lib.paths import EXECUTED, FIGURES, NOTEBOOKS, ROOT, shown
from lib.run import progress, provenance
from lib.study import Study

# Else a kernel says at each start that its connection, within this machine, is not encrypted, and of a cell that failed
# that it was interrupted. What went wrong is in the notebook and in NotebookError.
QUIET = ["--IPKernelApp.log_level=CRITICAL"]


class NotebookError(RuntimeError):
    """A notebook did not run to its end."""


@dataclass(frozen=True)
class Job:
    """How to run the notebooks of one study."""

    study: Study
    overrides: dict
    fresh: bool
    redraw: bool

    @property
    def folder(self) -> Path:
        """Redrawn notebooks go apart: the committed ones keep the provenance of the run that computed."""
        return EXECUTED / ("redraw" if self.redraw else self.study.label)


def sources(only: str | None = None) -> list[Path]:
    """The numbered notebooks in order; with `only`, those whose name begins with it."""
    return [path for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")) if path.name.startswith(only or "")]


def figures_of(study: Study, source: Path) -> list[Path]:
    """The figure files that a notebook has written: they begin with its number."""
    return sorted((FIGURES / study.label).glob(f"{source.name[:2]}_*"))


def unchanged(job: Job, source: Path) -> bool:
    """Whether the executed notebook is whole, of this very source, code and study, and its figures stand."""
    target = job.folder / source.name
    if not target.is_file():
        return False
    stamp = nbformat.read(target, as_version=4).metadata.get("compendium", {})
    return stamp.get("inputs") == _inputs(job, source) and stamp.get("figures") == _figure_digests(job, source)


def execute(job: Job, source: Path) -> float:
    """Run one notebook into its place and return its seconds. Raises NotebookError when a cell fails; the
    partial notebook then stands beside the target as .partial.ipynb, for reading."""
    target = job.folder / source.name
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial.ipynb")
    start = time.monotonic()
    prepared = _prepared(job, source, target.with_suffix(".in.ipynb"))
    parameters = {"profile": job.study.profile, "overrides": job.overrides, "fresh": job.fresh}
    try:
        notebook = papermill.execute_notebook(prepared, partial, parameters, cwd=ROOT, kernel_name="python3",
                                              progress_bar=False, log_output=False, extra_arguments=QUIET)
    except (PapermillExecutionError, DeadKernelError) as error:
        reason = f"{error.ename}: {error.evalue}" if isinstance(error, PapermillExecutionError) else str(error)
        raise NotebookError(f"a cell of {source.name} failed: {reason}. The notebook up to that cell is "
                            f"{shown(partial)}; what was computed is kept, so the same command goes on "
                            "from there") from error
    finally:
        prepared.unlink(missing_ok=True)
    _settle(notebook, {"inputs": _inputs(job, source), "figures": _figure_digests(job, source)})
    nbformat.write(notebook, partial)
    os.replace(partial, target)
    return time.monotonic() - start


def _prepared(job: Job, source: Path, path: Path) -> Path:
    """The source, on redraw with every `compute` cell replaced by a line that says so."""
    notebook = nbformat.read(source, as_version=4)
    for k, cell in enumerate(notebook.cells):
        if job.redraw and "compute" in cell.metadata.get("tags", []):
            skipped = nbformat.v4.new_markdown_cell("*Skipped on redraw: this cell computes on a small example.*")
            notebook.cells[k] = skipped
    nbformat.write(notebook, path)
    return path


def _settle(notebook, stamp: dict) -> None:
    """Stamp the executed notebook and drop what changes with every run though nothing in it does."""
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("papermill", None)
    notebook.metadata["compendium"] = stamp


def _inputs(job: Job, source: Path) -> str:
    """A digest over everything that a notebook's outputs depend on, but the tables: those follow from it."""
    facts = [source.read_bytes(), provenance.code_digest(), job.study.digest(), job.study.label, job.fresh]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _figure_digests(job: Job, source: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in figures_of(job.study, source)}


class Follower:
    """Print what the kernels append to the progress file, while the block runs."""

    def __init__(self, path: Path):
        self.path, self.stop = path, threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Follower":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("")
        os.environ[progress.LOG] = str(self.path)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()
        del os.environ[progress.LOG]

    def _follow(self) -> None:
        with open(self.path) as file:
            while True:
                last = self.stop.is_set()
                for line in file:
                    print("  " + line.rstrip(), flush=True)
                if last:
                    return
                time.sleep(0.2)
