"""How large a model is, from its configuration alone: no weight is loaded."""

import json
from typing import NamedTuple

from lib.errors import InputError
from lib.inputs import models, tiny
from lib.inputs.checkpoints import KNOWN


class Size(NamedTuple):
    """Counts of weights: all `parameters`, those of the `linear` layers that are pruned, those of the largest `block`.
    `widest`: inputs of the widest linear layer. `hidden`: features of a hidden state."""

    parameters: int
    linear: int
    block: int
    widest: int
    hidden: int


def size(name: str) -> Size:
    """The size of a model by its name. Raises InputError for what `lib.inputs.models.check` refuses."""
    if name in KNOWN:
        return Size(*KNOWN[name].size)
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from lib.pruning.blocks import find_blocks, linear_layers

    models.check(name)
    if name in tiny.RECIPES:
        config = tiny.config(name)
    else:
        settings = models.config(name) or json.loads((models.folder(name) / "config.json").read_text())
        config = AutoConfig.for_model(**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    blocks = find_blocks(model)[1]
    layers = [linear for block in blocks for linear in linear_layers(block).values()]
    if not layers:
        raise InputError(f"model {name} has no linear layers in its blocks, so there is nothing to prune")
    shapes = [layer.weight.shape for layer in layers]
    return Size(_count(model), sum(shape.numel() for shape in shapes), max(map(_count, blocks)),
                max(max(shape) for shape in shapes), config.get_text_config().hidden_size)


def _count(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
