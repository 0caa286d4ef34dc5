"""A model whose decoder blocks stay in its files until they are at work (lib.pruning.residency)."""

import ctypes
from pathlib import Path

import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.inputs.stored import Stored
from lib.pruning import residency
from lib.pruning.blocks import find_blocks

ALIGNED = 64  # bytes, as torch aligns tensors
# glibc's mallopt: memory for what is larger than a MB comes from the system and goes back to it at once.
RETURNED = {-3: 1 << 20, -4: 1 << 16, -1: 1 << 20}  # M_MMAP_THRESHOLD, M_MMAP_MAX, M_TRIM_THRESHOLD


def load(folder: Path, dtype: torch.dtype, device: str) -> nn.Module:
    """The causal LM of a folder of safetensors; embeddings, last norm and output layer are in memory.

    Raises InputError where the files lack a parameter.
    """
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for option, value in RETURNED.items():
            mallopt(option, value)
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.tie_weights()
    stored = Stored(folder, model)
    place, blocks = find_blocks(model)
    shapes = [{name: p.shape for name, p in block.named_parameters()} for block in blocks]

    def read(index: int) -> dict[str, Tensor]:
        room = _room(shapes[index], dtype, device)
        return {name: values.copy_(_stored(stored, f"{place}.{index}.{name}")) for name, values in room.items()}

    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    for name, parameter in list(model.named_parameters()):
        if id(parameter) not in inside:
            owner, _, leaf = name.rpartition(".")
            values = _stored(stored, name).to(device=device, dtype=dtype, copy=True)
            model.get_submodule(owner)._parameters[leaf] = nn.Parameter(values, requires_grad=False)
    model.tie_weights()
    for _, module in model.named_modules():
        for key, buffer in module._buffers.items():
            module._buffers[key] = None if buffer is None else buffer.to(device)
    residency.stream(model, blocks, read)
    return model


def _stored(stored: Stored, name: str) -> Tensor:
    """A parameter as the file is mapped to it, to be copied: else it would be read page by page when it is used."""
    if name not in stored:
        raise InputError(f"the checkpoint lacks {name}, which would be random; complete it or give another model")
    return stored[name]


def _room(shapes: dict[str, torch.Size], dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """Tensors of these shapes in one stretch of memory, which goes back to the system as a whole when the block is
    dropped; each begins where a tensor of its own might."""
    align = ALIGNED // dtype.itemsize
    sizes = [-(-shape.numel() // align) * align for shape in shapes.values()]
    parts = torch.empty(sum(sizes), dtype=dtype, device=device).split(sizes)
    return {name: part[:shape.numel()].view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
