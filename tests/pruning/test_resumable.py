"""Pruning into files gives the same bits as pruning in memory, whatever fits there and however often it is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from shapes import stored

from lib.inputs import models
from lib.paths import ROOT
from lib.pruning import files, resumable
from lib.pruning.activations import Activations
from lib.pruning.driver import applied, prune

WINDOWS = torch.arange(10 * 32).reshape(10, 32) * 7 % 256
SHAPE = [(8, 32, 64), (2, 32, 64)]  # of the hidden states, in batches of 8 windows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return stored("tiny-gemma3", tmp_path_factory.mktemp("model"))


def same(ours, theirs) -> bool:
    return (ours.digest() == theirs.digest() and ours.layers == theirs.layers
            and ours.block_errors == theirs.block_errors and ours.weights.keys() == theirs.weights.keys()
            and all(torch.equal(ours.weights[k], theirs.weights[k]) for k in ours.weights))


@pytest.mark.parametrize("budget", [0, 100_000, 10**9])
@pytest.mark.parametrize("method", ["wanda", "sparsegpt", "magnitude"])
def test_the_folder_holds_what_pruning_in_memory_gives(folder, tmp_path, method, budget):
    ids = None if method == "magnitude" else WINDOWS
    model = models.load(folder, streamed=True)[0]
    ours = resumable.prune_into(tmp_path / "p", model, ids, method, 0.5, budget=budget)
    theirs = prune(models.load(folder)[0], ids, method, 0.5)
    assert same(ours, theirs) and same(files.load(tmp_path / "p"), theirs)
    assert {p.name for p in tmp_path.iterdir()} == {"p"} and len(list((tmp_path / "p").iterdir())) == 4
    with torch.inference_mode(), applied(model, ours):
        pruned = model(WINDOWS).logits
    files.save(theirs, tmp_path / "one.safetensors")
    whole = models.load(folder)[0]
    with torch.inference_mode(), applied(whole, files.load(tmp_path / "one.safetensors")):
        assert torch.equal(whole(WINDOWS).logits, pruned)


def test_the_analysis_reads_the_folder_as_the_file(folder, tmp_path):
    from lib.analysis import masks

    model = models.load(folder)[0]
    made = resumable.prune_into(tmp_path / "p", model, WINDOWS, "wanda", 0.5)
    files.save(prune(model, WINDOWS, "wanda", 0.5), tmp_path / "one.safetensors")
    ours, theirs = masks.read(tmp_path / "p"), masks.read(tmp_path / "one.safetensors")
    assert ours.shapes == theirs.shapes and ours.group == theirs.group and made.masks.keys() == ours.bits.keys()
    assert all((ours.bits[name] == theirs.bits[name]).all() for name in theirs.bits)


KILLED = """
import json, os, signal, sys
from pathlib import Path
import torch
from lib.inputs import models
from lib.pruning import files, resumable

at, save = int(sys.argv[3]), files.save
def dying(pruned, path):
    if at >= 0 and path.name == f"block-{at:04}.safetensors":
        os.kill(os.getpid(), signal.SIGKILL)
    save(pruned, path)
    if path.name == f"block-{-at - 1:04}.safetensors":
        os.kill(os.getpid(), signal.SIGKILL)
resumable.files.save = dying
resumable.prune_into(Path(sys.argv[1]), models.load(sys.argv[2], streamed=True)[0],
                     torch.tensor(json.loads(sys.argv[4])), "sparsegpt", 0.5)
"""


def kill(place: Path, folder: str, at: int) -> subprocess.CompletedProcess:
    """Prune into `place` in a process that ends where `at` says."""
    words = [sys.executable, "-c", KILLED, place, folder, str(at), json.dumps(WINDOWS.tolist())]
    return subprocess.run(words, cwd=ROOT)


@pytest.mark.parametrize("at", [0, 1, 3, -1, -3, -4])
def test_a_killed_call_goes_on_at_the_block_it_reached(folder, tmp_path, at, monkeypatch):
    """Killed before block `at` is written, or after block -`at` - 1 is."""
    killed = kill(tmp_path / "p", folder, at)
    assert killed.returncode == -9 and not (tmp_path / "p").exists()
    written, save = [], files.save
    monkeypatch.setattr(resumable.files, "save", lambda pruned, path: (written.append(path.name), save(pruned, path)))
    model = models.load(folder, streamed=True)[0]
    ours = resumable.prune_into(tmp_path / "p", model, WINDOWS, "sparsegpt", 0.5)
    assert same(ours, prune(models.load(folder)[0], WINDOWS, "sparsegpt", 0.5))
    reached = at if at >= 0 else -at
    assert written == [f"block-{k:04}.safetensors" for k in range(reached, 4)]


def test_a_damaged_block_is_pruned_again(folder, tmp_path):
    kill(tmp_path / "p", folder, 2)
    block = tmp_path / "p.partial/block-0001.safetensors"
    data = bytearray(block.read_bytes())
    data[-20] ^= 1
    block.write_bytes(data)
    model = models.load(folder, streamed=True)[0]
    ours = resumable.prune_into(tmp_path / "p", model, WINDOWS, "sparsegpt", 0.5)
    assert same(ours, prune(models.load(folder)[0], WINDOWS, "sparsegpt", 0.5))


@pytest.mark.parametrize(("budget", "in_memory"), [(0, 0), (70_000, 1), (10**6, 2)])
def test_activations_beyond_the_budget_are_in_files_alone(tmp_path, budget, in_memory):
    tensors = [torch.randn(shape) for shape in SHAPE]
    kept = Activations(tmp_path / "a", budget, tensors)
    assert len(list((tmp_path / "a").iterdir())) == len(tensors) - in_memory
    assert all(torch.equal(a, b) for a, b in zip(kept, tensors, strict=True))
    durable = Activations(tmp_path / "b", budget, tensors, durable=True)
    durable.free(0)
    again = Activations.found(tmp_path / "b", 2, "cpu")
    assert all(torch.equal(a, b) for side in (durable, again) for a, b in zip(side, tensors, strict=True))
    with pytest.raises(FileNotFoundError):
        Activations.found(tmp_path / "b", 3, "cpu")
