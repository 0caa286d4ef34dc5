"""Causal LMs and their tokenizers: from pinned assets, a folder, a GGUF file, a hub id, or a tiny recipe.

A name is looked up in that order: the two known real models, the recipes of `lib.inputs.tiny`, a local path
(relative to the repository root, then to the working directory), a hub id `organisation/model[@revision]`.
GGUF files are de-quantized once to float32 safetensors in the cache. Nothing here imports torch for a known
name until `load`.
"""

import hashlib
import json
import re
from pathlib import Path

from lib.errors import InputError
from lib.inputs import assets, checkpoints, hub_models, tiny
from lib.inputs.checkpoints import KNOWN
from lib.inputs.sealed import file_hash
from lib.paths import CACHE, ROOT

DTYPES = ("float32", "bfloat16", "float16")
CONVERSION = 1  # raise when GGUF conversion changes what it writes
HUB = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


def load(name: str, dtype: str = "float32", device: str | None = None, streamed: bool = False, gpus: int = 1):
    """(model, tokenizer) of a name, in eval mode, without gradients and without key-value cache.

    `dtype`: of the weights and the forward pass. `device`: default CUDA where there is one, else the CPU. `streamed`:
    decoder blocks are in memory only while they are at work (lib.pruning.residency), for models larger than memory.
    `gpus`: how many its blocks are spread over (lib.inputs.spread).
    Raises InputError for whatever is not a decoder with linear layers in safetensors or GGUF.
    """
    import torch

    from lib.inputs import spread
    from lib.pruning.blocks import find_blocks, linear_layers

    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; allowed: {', '.join(DTYPES)}. Pruning compares weights by "
                         "size, so integer and quantized weights cannot be used")
    check(name)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if streamed and name in tiny.RECIPES:
        raise InputError(f"model {name} is made on the spot and has no files to be streamed from; load it whole")
    if name in tiny.RECIPES:
        model, tokenizer = tiny.model(name).to(getattr(torch, dtype)), tiny.tokenizer()
    elif streamed:
        from lib.inputs import streamed as by_block

        place = folder(name)
        model, tokenizer = by_block.load(place, getattr(torch, dtype), device), checkpoints.tokenizer(place)
    else:
        place = folder(name)
        with checkpoints.quiet():
            model, tokenizer = (spread.load(place, getattr(torch, dtype), range(gpus)) if gpus > 1 else
                                checkpoints.read(place, getattr(torch, dtype)))
    if not any(linear_layers(block) for block in find_blocks(model)[1]):
        raise InputError(f"model {name} ({type(model).__name__}) has no linear layers in its blocks, so "
                         "there is nothing to prune; give a transformer decoder")
    model.config.get_text_config().use_cache = False
    model.requires_grad_(False).eval()
    return model if streamed or gpus > 1 else model.to(device), tokenizer


def check(name: str) -> None:
    """Raise InputError, before anything is loaded, when the name is unknown or its configuration is not that
    of a plain causal LM. A hub id's configuration (a few KB) is fetched."""
    if name in KNOWN or name in tiny.RECIPES:
        return
    place = _local(name)
    if place is None or place.is_dir():
        _check_config(name, config(name))


def config(name: str) -> dict:
    """config.json of a folder or hub id; empty for a GGUF file. A hub id's (a few KB) is fetched."""
    place = _local(name)
    if place is not None and place.is_file():
        return {}
    path = hub_models.config_file(name) if place is None else place / "config.json"
    if not path.is_file():
        raise InputError(f"the folder {place} has no config.json, so it is not a model; give the folder that "
                         "holds config.json, or the .gguf file itself")
    return json.loads(path.read_text())


def context_length(name: str) -> int | None:
    """Longest sequence in tokens; None where the model does not limit it or does not say."""
    if name in tiny.RECIPES:
        return tiny.context_length(name)
    if name in KNOWN:
        return KNOWN[name].context
    settings = config(name)
    settings = settings | settings.get("text_config", {})
    return next((settings[key] for key in ("max_position_embeddings", "n_positions") if settings.get(key)), None)


def fingerprint(name: str) -> str:
    """Identity of a model's weights and tokenizer: asset pin, recipe number, content hash or hub commit."""
    if name in tiny.RECIPES:
        return f"{name}:{tiny.RECIPE}"
    if name in KNOWN:
        return f"{name}:{assets.pin(name)}:{CONVERSION}"
    place = _local(name)
    if place is None:
        return f"{hub_models.repository(name)[0]}@{hub_models.config_file(name).parent.name}"
    files = sorted(p for p in (place.iterdir() if place.is_dir() else [place]) if p.is_file())
    digest = hashlib.sha256("".join(f"{p.name}\0{file_hash(p)}\n" for p in files).encode()).hexdigest()
    return f"{place.name}:{digest}"


def prefix_token(tokenizer) -> int | None:
    """Id that text starts with: BOS if there is one, else EOS (lm-eval's `prefix_token_id`), else None."""
    return tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id


# --- where a name lives ------------------------------------------------------------------------------------

def _local(name: str) -> Path | None:
    """The folder or GGUF file of that name, if there is one."""
    for path in (ROOT / name, Path(name).absolute()):
        if path.is_dir() or (path.suffix == ".gguf" and path.is_file()):
            return path
    if not HUB.fullmatch(name):
        raise InputError(f"model {name!r} is unknown. Known: {', '.join([*KNOWN, *tiny.RECIPES])}. Otherwise "
                         "give a folder with config.json, safetensors and tokenizer, a .gguf file, or a hub "
                         "id as organisation/model or organisation/model@revision")
    return None


def is_there(name: str) -> bool:
    """Whether the model's safetensors lie on this machine, so that nothing is fetched or converted."""
    if name in KNOWN:
        return _converted(name).is_dir()
    return name in tiny.RECIPES or _local(name) is not None or hub_models.is_there(name)


def folder(name: str) -> Path:
    """A folder of safetensors and tokenizer for a name that `check` let pass, made or fetched if need be."""
    if name in KNOWN:
        return checkpoints.converted(lambda: assets.fetch(name) / KNOWN[name].gguf, _converted(name))
    place = _local(name) or hub_models.snapshot(name)
    if place.is_file():
        target = CACHE / "models" / f"{place.stem}-{file_hash(place)[:12]}-{CONVERSION}"
        return checkpoints.converted(lambda: place, target)
    if not list(place.glob("*.safetensors")):
        raise InputError(f"model {name} has no *.safetensors file. Pickled checkpoints (.bin, .pt) can run "
                         "code when they are opened and are refused; convert it with save_pretrained, or "
                         "give a .gguf file")
    return place


def _converted(name: str) -> Path:
    """Where the safetensors of an asset lie, or will lie."""
    return CACHE / "models" / f"{name}-{assets.pin(name)[:12]}-{CONVERSION}"


def _check_config(name: str, config: dict) -> None:
    """Refuse what is not a plain causal LM, with the reason."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind, made_as = config.get("model_type"), config.get("architectures") or []
    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    only = "Only decoders, which predict the next token, can be used"
    if config.get("auto_map"):
        reason = ("its config.json names code of its own (auto_map). Code from a model is never run "
                  "(trust_remote_code is off); models whose class is part of transformers can be used")
    elif config.get("is_encoder_decoder"):
        reason = f"it is an encoder-decoder ({kind}). {only}"
    elif causal is None or (made_as and causal not in made_as):
        reason = f"it is no causal language model (model_type {kind!r}, architectures {made_as}). {only}"
    elif config.get("quantization_config"):
        reason = ("its weights are quantized. Pruning compares weights by size: use the original in float32, "
                  "bfloat16 or float16")
    else:
        return
    raise InputError(f"model {name} cannot be used: {reason}")
