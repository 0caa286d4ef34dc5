"""Pruning with all that is made in files, block by block: for models larger than memory, and runs that may be killed.

The folder is made as `<folder>.partial` and has, while it is made, a file a finished block (as lib.pruning.files
writes them, `block-<number>.safetensors`) and the hidden states that the next block takes in. It gets its name when the
last block is done.
"""

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from lib.pruning import files
from lib.pruning.activations import Activations
from lib.pruning.blocks import Step, replay
from lib.pruning.driver import Job, warn_of_unseen
from lib.pruning.pruned import Pruned

BUDGET = 2_000_000_000  # bytes of hidden states in memory


@torch.no_grad()
def prune_into(folder: Path, model: nn.Module, windows: Tensor | None, method: str,
               sparsity: float | None = None, pattern: str = "unstructured", group: str | None = None,
               batch_size: int = 8, budget: int = BUDGET) -> Pruned:
    """As lib.pruning.driver.prune, into a folder that lib.pruning.files.load reads; the same bits.

    A call that was killed goes on at the block it had reached when it is made again: for the same arguments, which the
    folder's name is to stand for. In memory: hidden states up to `budget` bytes, beyond which they are read from files
    when they are needed, one block's masks, and the weights that the model holds.
    """
    partial_folder = Path(f"{folder}.partial")
    partial_folder.mkdir(parents=True, exist_ok=True)
    job = Job(model, windows, method, sparsity, pattern, group, batch_size, _inputs(partial_folder, 0, budget))
    if job.start is None:
        for index, part in enumerate(job.without_text()):
            files.save(part, _block(partial_folder, index))
    else:
        _walk(job, partial_folder, budget)
    for left in partial_folder.glob("states-*"):
        shutil.rmtree(left)
    partial_folder.rename(folder)
    made = files.load(folder)
    warn_of_unseen(made)
    return made


def _walk(job: Job, folder: Path, budget: int) -> None:
    first, hidden = _reached(folder, len(job.start.recording.hidden), next(job.model.parameters()).device)

    def visit(step: Step) -> None:
        part = job.part(step, partial(_room, folder / "states-dense", budget // 3))
        files.save(part, _block(folder, step.index))
        shutil.rmtree(_states(folder, step.index), ignore_errors=True)

    replay(job.model, job.start.recording, visit, first, hidden,
           lambda index: _inputs(folder, index, budget))


def _reached(folder: Path, batches: int, device) -> tuple[int, Activations | None]:
    """(the first block that is not done, its inputs); (0, None) where nothing was left that can be gone on from."""
    done = 0
    while _is_whole(_block(folder, done)):
        done += 1
    while done:
        try:
            return done, Activations.found(_states(folder, done), batches, device)
        except OSError:  # killed between the file of this block and the end of the states before it
            done -= 1
    return 0, None


def _is_whole(path: Path) -> bool:
    try:
        return path.is_file() and bool(files.load(path).masks)
    except (ValueError, SafetensorError):
        path.unlink()
        return False


def _inputs(folder: Path, index: int, budget: int) -> Activations:
    """Room for what the block takes in; a third of the budget, as its dense and its pruned outputs get."""
    return Activations(_states(folder, index), budget // 3, durable=True)


def _room(folder: Path, budget: int, tensors: Iterable[Tensor]) -> Activations:
    return Activations(folder, budget, tensors)


def _block(folder: Path, index: int) -> Path:
    return folder / f"block-{index:04}.safetensors"


def _states(folder: Path, index: int) -> Path:
    """What the block takes in."""
    return folder / f"states-{index:04}"
