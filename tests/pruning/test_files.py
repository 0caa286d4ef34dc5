import resource
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.errors import InputError
from lib.inputs import models
from lib.pruning import files
from lib.pruning.driver import prune


@pytest.fixture(scope="module")
def pruned():
    model, _ = models.load("tiny-llama")
    ids = torch.arange(4 * 32).reshape(4, 32) % 256
    return prune(model, ids, "wanda", 0.5)


def test_a_file_gives_back_what_was_saved(pruned, tmp_path):
    files.save(pruned, tmp_path / "p.safetensors")
    loaded = files.load(tmp_path / "p.safetensors")
    assert loaded.masks.keys() == pruned.masks.keys()
    assert all(torch.equal(loaded.masks[k], pruned.masks[k]) for k in pruned.masks)
    assert loaded.digest() == pruned.digest()
    assert (loaded.layers, loaded.block_errors) == (pruned.layers, pruned.block_errors)
    assert [p.name for p in tmp_path.iterdir()] == ["p.safetensors"]


def test_a_bit_is_one_weight(pruned, tmp_path):
    files.save(pruned, tmp_path / "p.safetensors")
    weights = sum(mask.numel() for mask in pruned.masks.values())
    assert (tmp_path / "p.safetensors").stat().st_size < weights / 8 + 20_000


@pytest.mark.parametrize("damage", ["cut", "flip", "other"])
def test_a_damaged_file_is_never_read(pruned, tmp_path, capsys, damage):
    path = tmp_path / "p.safetensors"
    files.save(pruned, path)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-100] ^= 1
    path.write_bytes({"cut": data[:-50], "flip": data, "other": b"nothing"}[damage])
    assert files.load_if_whole(path) is None
    assert "pruned again" in capsys.readouterr().err


def test_no_flipped_bit_is_read(pruned, tmp_path):
    """Header, report, masks: every byte of the file is under the digest, or the file no longer opens."""
    path = tmp_path / "p.safetensors"
    files.save(pruned, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [*range(0, 400, 7), *rng.integers(0, len(whole), 200)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(8))]) + whole[at + 1:])
        assert files.load_if_whole(path) is None, f"byte {at} of {len(whole)}"


def test_no_file_is_no_damage(tmp_path, capsys):
    assert files.load_if_whole(tmp_path / "none") is None
    assert capsys.readouterr().err == ""


def test_kept_weights_come_back_in_their_dtype(tmp_path):
    model, _ = models.load("tiny-llama", "bfloat16")
    pruned = prune(model, torch.arange(4 * 32).reshape(4, 32) % 256, "sparsegpt", 0.5)
    files.save(pruned, tmp_path / "p.safetensors")
    loaded = files.load(tmp_path / "p.safetensors")
    assert loaded.digest() == pruned.digest() and loaded.weights.keys() == pruned.weights.keys()
    for layer, values in pruned.weights.items():
        assert values.dtype == loaded.weights[layer].dtype == torch.bfloat16
        assert torch.equal(values, loaded.weights[layer])


def test_a_full_disk_is_said_and_leaves_nothing(pruned, tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match="the disk has 1,000 left"):
        files.save(pruned, tmp_path / "p.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_midway_is_said_and_leaves_nothing(pruned, tmp_path):
    """Nobody foresees what another process writes meanwhile. Here files may not grow beyond 1000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(InputError, match="could not be written"):
            files.save(pruned, tmp_path / "p.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
