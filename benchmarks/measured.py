"""What benchmarks.pruning measures, each call in a process of its own."""

import gc
import platform
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import published
from lib.inputs import corpora, models
from lib.inputs.calibration import mixture
from lib.pruning.blocks import Step, find_blocks, linear_layers, record_arguments, replay, walk, weight_matrix
from lib.pruning.collect import collecting
from lib.pruning.driver import applied, prune
from lib.pruning.statistics import InputNorm, full_precision

BATCH = 8  # windows in one forward pass, as lib.pruning.driver has them
HIGH_WATER = Path("/proc/self/clear_refs")  # 5 sets VmHWM back to the memory that is resident now
RANDOM = {"llama-3-8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                         "max_position_embeddings": 8192, "rope_theta": 500000.0}}


@dataclass(frozen=True)
class Setting:
    """What is measured: a name of lib.inputs.models or of RANDOM. `ids`: file of token ids [windows, seqlen]."""

    model: str
    dtype: str
    device: str
    ids: Path
    sparsity: float = 0.5


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def draw(setting: Setting, shape: tuple[int, int], corpus: str, language: str) -> dict:
    """Write the calibration windows; what the table says of them and of the machine."""
    facts = {"threads": torch.get_num_threads(), "torch": torch.__version__, "machine": platform.machine()}
    if setting.model in RANDOM:
        vocabulary = RANDOM[setting.model]["vocab_size"]
        ids = torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(0))
        corpus = language = "random"
    else:
        pool = corpora.load(corpus, language, "calibration")
        tokenizer = models.load(setting.model, device="cpu")[1]
        ids = mixture({language: shape[0]}, corpus, tokenizer, shape[1], 0, pools={language: pool}).ids
    np.save(setting.ids, ids.numpy())
    return {"corpus": corpus, "language": language} | facts


@torch.no_grad()
def run(setting: Setting, party: str, method: str, zeros: Path) -> dict:
    """Seconds, peak memory above the loaded model (MB) and number of weights of one run after warm-up, not counting
    loading; where its zeros are goes to the file `zeros`, one bit a weight."""
    work = {"ours": lambda model, ids: prune(model, ids, method, setting.sparsity),
            "published": lambda model, ids: published.prune(model, ids, method, setting.sparsity),
            "floor": lambda model, ids: None}[party]
    model, ids = loaded(setting)
    work(models.load("tiny-llama", device=setting.device)[0], torch.arange(4 * 32).reshape(4, 32))
    model.base_model(input_ids=ids[:BATCH].to(setting.device))
    if party == "floor":
        return _floor(model, ids, method)
    before, start = reset_memory(setting.device), _now(setting.device)
    pruned = work(model, ids)
    # The kernel counts resident pages to within some; what takes less than that takes nothing.
    seconds, peak = _now(setting.device) - start, max(0, peak_memory(setting.device) - before)
    with applied(model, pruned) if pruned else nullcontext():
        weights = _save_zeros(model, zeros)
    return {"seconds": seconds, "peak_mb": peak / 2**20, "weights": weights}


def _floor(model: nn.Module, ids: Tensor, method: str) -> dict:
    """Seconds of two forward passes of the blocks, and for SparseGPT of half of each distinct Gram product: it is
    symmetric."""
    recording, widths = record_arguments(model, ids.split(BATCH)), Counter()

    def twice(step: Step) -> None:
        for passes in (step.forward(), step.advance()):
            for _ in passes:
                pass

    def count(step: Step) -> None:
        with collecting(step.name, step.block, InputNorm) as norms:
            for _ in step.advance():
                pass
        widths.update(len(norm.value()) for norm in {id(norm): norm for norm in norms.values()}.values())

    start = _now(model.device)
    replay(model, recording, twice)
    forward = _now(model.device) - start
    walk(model, [ids[:1]], count)
    tokens = BATCH * ids.shape[1]
    products = sum(number * _product_seconds(width, tokens, model.device) for width, number in widths.items())
    gram = products * ids.numel() / tokens / 2 if method == "sparsegpt" else 0.0
    return {"seconds": forward + gram, "forward_seconds": forward, "gram_seconds": gram}


def _product_seconds(width: int, tokens: int, device: torch.device) -> float:
    """The fastest of five float32 products [width, tokens] x [tokens, width]."""
    X, times = torch.randn(tokens, width, device=device), []
    with full_precision():
        for _ in range(5):
            start = _now(device)
            X.T @ X
            times.append(_now(device) - start)
    return min(times)


def loaded(setting: Setting) -> tuple[nn.Module, Tensor]:
    """The model with all its weights in memory, and the token ids. The dtype "mixed" is that of lib.run.states."""
    dtype = "float32" if setting.dtype == "mixed" else setting.dtype
    torch.set_float32_matmul_precision("medium" if setting.dtype == "mixed" else "highest")
    if setting.model in RANDOM:
        torch.manual_seed(0)
        with torch.device(setting.device):
            model = LlamaForCausalLM._from_config(LlamaConfig(**RANDOM[setting.model]), dtype=getattr(torch, dtype))
        model.requires_grad_(False).eval()
    else:
        model = models.load(setting.model, dtype, setting.device)[0]
    for weight in model.parameters():
        weight.sum()
    return model, torch.from_numpy(np.load(setting.ids))


def _save_zeros(model: nn.Module, path: Path) -> int:
    """Write where the weights of the blocks are zero; how many weights there are."""
    layers = {f"{k}.{layer}": weight_matrix(linear) for k, block in enumerate(find_blocks(model)[1])
              for layer, linear in linear_layers(block).items()}
    save_file({name: np.packbits((W == 0).cpu().numpy()) for name, W in layers.items()}, path)
    return sum(W.numel() for W in layers.values())


def _now(device: str | torch.device) -> float:
    """Seconds, once all that was asked of the device is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def reset_memory(device: str) -> int:
    """Start a new high-water mark; bytes in use now."""
    gc.collect()
    if device == "cuda":
        torch.cuda.resetpeak_memory_stats()
        return torch.cuda.memory_allocated()
    HIGH_WATER.write_text("5")
    return _status("VmRSS")


def peak_memory(device: str) -> int:
    """The high-water mark in bytes: resident memory of the process, or memory allocated on the GPU."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
