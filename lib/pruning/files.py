"""A pruned model as a file: masks as packed bits in safetensors, the configuration as its metadata."""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lib.pruning.driver import Pruned

FORMAT = 1


def save(pruned: Pruned, path: Path) -> None:
    """Write masks (one bit a weight, 1 = kept) and report atomically. The metadata carries a digest of the
    bits, so that a damaged file is found when it is read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = {name: np.packbits(mask.cpu().numpy()) for name, mask in pruned.masks.items()}
    about = {"format": FORMAT, "method": pruned.method, "sparsity": pruned.sparsity, "pattern": pruned.pattern,
             "group": pruned.group, "layers": pruned.layers, "block_errors": pruned.block_errors,
             "shapes": {name: list(mask.shape) for name, mask in pruned.masks.items()}, "digest": _digest(bits)}
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    os.close(handle)
    try:
        save_file(bits, temporary, metadata={"pruned": json.dumps(about)})
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: Path) -> Pruned:
    """The Pruned of a file. Raises ValueError or SafetensorError when it is damaged or of another format."""
    with safe_open(path, framework="numpy") as file:
        about = json.loads((file.metadata() or {}).get("pruned", "{}"))
        if about.get("format") != FORMAT:
            raise ValueError(f"{path} is not a pruned model of format {FORMAT}")
        bits = {name: file.get_tensor(name) for name in file.keys()}
    if _digest(bits) != about["digest"]:
        raise ValueError(f"{path} is damaged: its bits do not have the digest it states")
    masks = {name: torch.from_numpy(np.unpackbits(bits[name], count=int(np.prod(shape))).astype(bool).reshape(shape))
             for name, shape in about["shapes"].items()}
    return Pruned(masks=masks, **{k: about[k] for k in ("method", "sparsity", "pattern", "group", "layers",
                                                        "block_errors")})


def load_if_whole(path: Path) -> Pruned | None:
    """The file's Pruned; None when there is no file, or when it is damaged, which is said."""
    if not path.is_file():
        return None
    try:
        return load(path)
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        print(f"{path} cannot be used ({error}); the model is pruned again", file=sys.stderr)
        return None


def _digest(bits: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(bits):
        digest.update(name.encode() + b"\0" + bits[name].tobytes())
    return digest.hexdigest()
