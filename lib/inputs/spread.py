"""A model whose decoder blocks lie on several GPUs, for one that is too large for a single GPU.

The first GPU also holds all that is no block. accelerate's hooks bring a block's inputs to its GPU and its output back
to the first, so hidden states, masks and positions are always there: only what is inside a block is elsewhere.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from lib.inputs import checkpoints
from lib.pruning.blocks import find_blocks


def load(folder: Path, dtype: torch.dtype, devices: Sequence[int | str]):
    """(model, tokenizer) of a folder of safetensors, read to the devices. Errors: see `checkpoints.read`."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with init_empty_weights(include_buffers=True):
        empty = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model, tokenizer = checkpoints.read(folder, dtype, device_map=device_map(empty, devices))
    return hand_back(model), tokenizer


def device_map(model: nn.Module, devices: Sequence[int | str]) -> dict[str, int | str]:
    """{module: device}: runs of blocks, so that each device holds about as many bytes, and all else on the first."""
    place, blocks = find_blocks(model)
    inside = {id(module) for module in blocks.modules()}
    own = {name: module for name, module in model.named_modules() if id(module) not in inside
           and (module._parameters or module._buffers)}
    before = sum({id(p): p.nbytes for module in own.values() for p in module.parameters(recurse=False)}.values())
    sizes = [sum(p.nbytes for p in block.parameters()) for block in blocks]
    share = (before + sum(sizes)) / len(devices)
    found: dict[str, int | str] = dict.fromkeys(own, devices[0])
    for index, size in enumerate(sizes):
        found[f"{place}.{index}"] = devices[int((before + size / 2) // share)]  # where the middle of the block falls
        before += size
    return found


def hand_back(model: nn.Module) -> nn.Module:
    """The model, each block of which takes its inputs from wherever they are and returns its output to there."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    for block in find_blocks(model)[1]:
        add_hook_to_module(block, AlignDevicesHook(next(block.parameters()).device, io_same_device=True,
                                                   skip_keys=model._skip_keys_device_placement))
    return model
