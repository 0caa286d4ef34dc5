"""The model card of an exported checkpoint: what was done to which model, exactly, and what is not known of it."""

import tomllib
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from huggingface_hub import ModelCardData

from lib.inputs import corpora, hub_models, models, tiny
from lib.inputs.calibration import shares
from lib.paths import DATA
from lib.pruning.pruned import Pruned, applied
from lib.run import provenance
from lib.study import Study, Variant

ORIGINALS = {  # models that come as assets -> hub id of the original, identifier of its licence there
    "gemma-3-270m": ("google/gemma-3-270m", "gemma"),
    "smollm2-135m": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"),
}


class Base(NamedTuple):
    """The dense model: its name on the hub where it has one, and where its weights came from."""

    name: str
    origin: str
    licence: str
    identifier: str | None  # of the licence, as the hub writes it


def base_of(model: str) -> Base:
    """What is known of a model by the name it was loaded under. No path of this machine is told."""
    same = "that of the base model; see there"
    if model in ORIGINALS:
        asset = tomllib.loads((DATA / "assets.toml").read_text(encoding="utf-8"))[model]
        name, identifier = ORIGINALS[model]
        return Base(name, f"{asset['origin']}. The weights that were pruned are the de-quantized ones of that 4-bit "
                    "file, not the original weights", asset["licence"], identifier)
    if model in tiny.RECIPES:
        return Base(model, "random weights, made for tests: this model has learned nothing",
                    "MIT, as the code that makes them", "mit")
    if model.endswith(".gguf"):
        return Base(Path(model).stem, f"the GGUF file {Path(model).name}. The weights that were pruned are the "
                    "de-quantized ones of that file: where it is quantized, they are not the original weights", same,
                    None)
    name = hub_models.repository(model)[0]
    if models.fingerprint(model).startswith(f"{name}@"):
        return Base(name, f"https://huggingface.co/{name}", same, None)
    return Base(Path(model).name, f"a local folder named {Path(model).name}", same, None)


@torch.no_grad()
def counted(model, pruned: Pruned) -> tuple[int, int]:
    """(exact zeros, parameters) of the whole pruned model; tied parameters count once."""
    with applied(model, pruned):
        zeros = sum(parameter.numel() - int(parameter.count_nonzero()) for parameter in model.parameters())
    return zeros, sum(parameter.numel() for parameter in model.parameters())


def card(study: Study, variant: Variant, model, pruned: Pruned, digest: str, folder: str) -> str:
    """README.md of the checkpoint in `folder` (its name): YAML front matter, then prose and a table of facts.

    `digest`: SHA-256 (hex) of the calibration windows. The same inputs and code give the same text.
    """
    base = base_of(variant.model)
    text = variant.calibration != "none"
    languages = list(shares(variant.calibration, study.calibration_languages(), variant.n_samples)) if text else None
    about = ModelCardData(base_model=base.name, language=languages, license=base.identifier or "other",
                          library_name="transformers", pipeline_tag="text-generation",
                          tags=["pruned", "sparse", pruned.method, pruned.pattern.replace(":", "-of-")])
    facts = "\n".join(f"| {name} | {value} |" for name, value in
                      (_pruning(model, pruned) | _calibration(variant, digest) | _code(variant)).items())
    return CARD.format(front=about.to_yaml(), folder=folder, base=base, facts=facts, method=pruned.method,
                       dtype=_dtype(model), label=variant.label.replace(variant.model, base.name, 1))


def _pruning(model, pruned: Pruned) -> dict[str, str]:
    removed, weights = (sum(row[key] for row in pruned.layers) for key in ("removed", "weights"))
    zeros, parameters = counted(model, pruned)
    before = sum(row["zero_before"] for row in pruned.layers)
    return {
        "method": pruned.method,
        "sparsity asked for": f"{pruned.sparsity:g} in each comparison group",
        "weights removed": f"{removed:,} of {weights:,} in the decoder's {len(pruned.layers)} linear layers "
                           f"({removed / weights:.6f})",
        "zeros in the whole checkpoint": f"{zeros:,} of {parameters:,} parameters ({zeros / parameters:.6f})",
        "zeros that the dense model has there": f"{before:,} ({before / weights:.6f})",
        "pattern": pruned.pattern, "comparison group": pruned.group,
        "kept weights": "changed, to make up for the removed ones" if pruned.weights else "as in the dense model",
        "not pruned": "embeddings, output layer, norms, biases",
        "mask digest": f"SHA-256 {pruned.digest()}"}


def _calibration(variant: Variant, digest: str) -> dict[str, str]:
    if variant.calibration == "none":
        return {"calibration": "none: the method looks at weights only"}
    corpus = Path(variant.calibration_corpus)
    return {
        "calibration language": variant.calibration,
        "calibration corpus": f"{corpus.name if corpus.is_absolute() else corpus} "
                              f"({corpora.fingerprint(variant.calibration_corpus)[:80]})",
        "calibration windows": f"{variant.n_samples} of {variant.seqlen} tokens (budget {variant.budget})",
        "seed of the calibration draw": str(variant.seed),
        "digest of the calibration token ids": f"SHA-256 {digest}"}


def _code(variant: Variant) -> dict[str, str]:
    return {
        "dense model": models.fingerprint(variant.model),
        "dtype of the forward pass": "mixed: float32, factors of matrix products may be rounded to bfloat16"
                                     if variant.dtype == "mixed" else variant.dtype,
        "code": f"digest {provenance.code_digest()[:16]}, commit {provenance.commit()}",
        "packages": f"torch {torch.__version__}, transformers {transformers.__version__}"}


def _dtype(model) -> str:
    return str(model.dtype).removeprefix("torch.")


CARD = """---
{front}
---

# {label}

The linear layers of {base.name}'s decoder, pruned with {method} after training and without retraining. Removed
weights are exact zeros in ordinary {dtype} tensors: files and memory are as large as those of the dense model, and
nothing runs faster without software that makes use of the zeros.

**Not evaluated.** Nothing was measured of this checkpoint: not its perplexity, in no language, and no task. Pruning
harms languages and abilities unevenly; test it on what you need before you rely on it.

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{folder}")
tokenizer = AutoTokenizer.from_pretrained("{folder}")
```

The mask of a linear layer is where its weight is not zero. Weights that were zero in the dense model already cannot
be told from removed ones.

## Base model and licence

Origin: {base.origin}.
Licence: {base.licence}. A pruned model is a derivative of its base model, and that licence's terms hold for it.

## How it was made

| | |
|---|---|
{facts}
"""
