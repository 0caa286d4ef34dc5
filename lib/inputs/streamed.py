"""A model whose decoder blocks stay in its files until they are at work (lib.pruning.residency)."""

from pathlib import Path

import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.inputs.stored import Stored
from lib.pruning import residency
from lib.pruning.blocks import find_blocks


def load(folder: Path, dtype: torch.dtype, device: str) -> nn.Module:
    """The causal LM of a folder of safetensors; embeddings, last norm and output layer are in memory.

    Raises InputError where the files lack a parameter.
    """
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.tie_weights()
    stored = Stored(folder, model)
    place, blocks = find_blocks(model)
    names = [list(dict(block.named_parameters())) for block in blocks]

    def read(index: int) -> dict[str, Tensor]:
        return {name: _read(stored, f"{place}.{index}.{name}", dtype, device) for name in names[index]}

    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    for name, parameter in list(model.named_parameters()):
        if id(parameter) not in inside:
            owner, _, leaf = name.rpartition(".")
            values = nn.Parameter(_read(stored, name, dtype, device), requires_grad=False)
            model.get_submodule(owner)._parameters[leaf] = values
    model.tie_weights()
    for _, module in model.named_modules():
        for key, buffer in module._buffers.items():
            module._buffers[key] = None if buffer is None else buffer.to(device)
    residency.stream(model, blocks, read)
    return model


def _read(stored: Stored, name: str, dtype: torch.dtype, device: str) -> Tensor:
    """A parameter, in memory of its own: what the file is mapped to would be read page by page when it is used."""
    if name not in stored:
        raise InputError(f"the checkpoint lacks {name}, which would be random; complete it or give another model")
    return stored[name].to(device=device, dtype=dtype, copy=True)
