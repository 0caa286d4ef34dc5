"""A pruned model as a file: masks as packed bits in safetensors, with the kept weights where the method changed
them, and the configuration as metadata."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lib.errors import InputError
from lib.pruning.pruned import Pruned

FORMAT = 2
WEIGHTS = "weights/"  # the kept weights of `layer` are the tensor `weights/layer`


def save(pruned: Pruned, path: Path) -> None:
    """Write masks (one bit a weight, 1 = kept), changed weights and report atomically. The metadata carries a
    digest of all of it, so that a damaged file is found when it is read.

    Raises InputError when the disk has no room for it; then nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: torch.from_numpy(np.packbits(mask.cpu().numpy())) for name, mask in pruned.masks.items()}
    tensors |= {WEIGHTS + name: values.contiguous() for name, values in pruned.weights.items()}
    about = {"format": FORMAT, "method": pruned.method, "sparsity": pruned.sparsity, "pattern": pruned.pattern,
             "group": pruned.group, "layers": pruned.layers, "block_errors": pruned.block_errors,
             "shapes": {name: list(mask.shape) for name, mask in pruned.masks.items()}}
    about["digest"] = _digest(tensors, about)
    size = sum(tensor.nbytes for tensor in tensors.values())
    free = shutil.disk_usage(path.parent).free
    if free < size:
        raise InputError(f"{path} needs {size:,} bytes and the disk has {free:,} left; free some, or remove runs "
                         "that are no longer needed")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata={"pruned": json.dumps(about)})
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        os.unlink(temporary)
        raise InputError(f"{path} could not be written ({error}); see that the disk has {size:,} bytes left and "
                         "that its folder may be written to") from error
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: Path) -> Pruned:
    """The Pruned of a file, or of a folder with a file a block, whose masks and weights are then read when they are
    asked for. Raises ValueError or SafetensorError when a file is damaged or of another format."""
    if path.is_dir():
        return _by_block(sorted(path.glob("block-*.safetensors")))
    with safe_open(path, framework="pt") as file:
        about = json.loads((file.metadata() or {}).get("pruned", "{}"))
        if about.get("format") != FORMAT:
            raise ValueError(f"{path} is not a pruned model of format {FORMAT}")
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    if about.pop("digest", None) != _digest(tensors, about):
        raise ValueError(f"{path} is damaged: its bits do not have the digest it states")
    masks = {name: _unpacked(tensors[name], shape) for name, shape in about["shapes"].items()}
    weights = {name.removeprefix(WEIGHTS): values for name, values in tensors.items() if name.startswith(WEIGHTS)}
    return Pruned(masks=masks, weights=weights, **{k: about[k] for k in ("method", "sparsity", "pattern", "group",
                                                                         "layers", "block_errors")})


def _by_block(files: list[Path]) -> Pruned:
    if not files:
        raise ValueError("there is no file of a block")
    masks, weights, layers, errors = {}, {}, [], []
    for file in files:
        part = load(file)
        masks |= {name: (file, list(mask.shape)) for name, mask in part.masks.items()}
        weights |= dict.fromkeys(part.weights, (file, None))
        layers += part.layers
        errors += part.block_errors
    return replace(part, masks=OnDisk(masks), weights=OnDisk(weights), layers=layers, block_errors=errors)


class OnDisk(Mapping[str, Tensor]):
    """Masks, or kept weights, by layer, each read from its file when it is asked for."""

    def __init__(self, places: dict[str, tuple[Path, list[int] | None]]):
        self._places = places  # file and a mask's shape

    def __getitem__(self, name: str) -> Tensor:
        path, shape = self._places[name]
        with safe_open(path, framework="pt") as file:
            return _unpacked(file.get_tensor(name), shape) if shape else file.get_tensor(WEIGHTS + name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def load_if_whole(path: Path) -> Pruned | None:
    """The Pruned of a file or folder; None when there is none, or when it is damaged, which is said."""
    if not path.exists():
        return None
    try:
        return load(path)
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        print(f"{path} cannot be used ({error}); the model is pruned again", file=sys.stderr)
        return None


def _unpacked(bits: Tensor, shape: list[int]) -> Tensor:
    """bool [out, in]"""
    count = int(np.prod(shape))
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count).astype(bool).reshape(shape))


def _digest(tensors: dict[str, Tensor], about: dict) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode() + b"\0")
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
