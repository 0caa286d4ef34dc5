"""A model four times as large as the memory that there is, pruned and read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from lib.inputs import tiny
from lib.paths import ROOT

LIMIT = 800_000_000
LAYERS, WIDTH, INNER = 48, 1024, 4096
BLOCK = 4 * (4 * WIDTH**2 + 3 * WIDTH * INNER + 2 * WIDTH)  # bytes in float32
GROUP = Path("/sys/fs/cgroup/memory/compendium-test")

WORK = """
import json, os, sys, threading, time
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
import torch, accelerate, datasets, pandas, transformers
from transformers.models.llama import modeling_llama
from lib.analysis import likelihood
from lib.inputs import models, stored, streamed
from lib.pruning import resumable
from lib.pruning.driver import applied
from lib.run import memory, states

def resident():
    fields = dict(line.split(":") for line in open("/proc/self/status"))
    return 1024 * int(fields["RssAnon"].split()[0])

peak = bare = resident()
def watch():
    global peak
    while True:
        peak = max(peak, resident())
        time.sleep(0.005)
threading.Thread(target=watch, daemon=True).start()
name, folder, budget = sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
assert states.streamed(name, "float32"), (memory.there(), "it does not fit, so it is streamed")
model, tokenizer = models.load(name, streamed=True)
ids = torch.arange(16 * 128).reshape(16, 128) % 256
made = resumable.prune_into(folder, model, ids, "wanda", 0.5, budget=budget, batch_size=1)
with applied(model, made):
    scores = likelihood.segment_nll(model, tokenizer, ["a"], ["a few words that are read by the pruned model"])
print(json.dumps({"bare": bare, "peak": peak, "there": memory.there(), "nll": float(scores["nll"].iloc[0]),
                  "removed": sum(row["removed"] for row in made.layers), "layers": len(made.layers)}))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A Llama with random weights in files of a block each."""
    place = tmp_path_factory.mktemp("large")
    config = LlamaConfig(hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=16,
                         vocab_size=tiny.VOCABULARY, max_position_embeddings=512, tie_word_embeddings=True,
                         architectures=["LlamaForCausalLM"], bos_token_id=tiny.BOS, eos_token_id=tiny.EOS)
    config.save_pretrained(place)
    tiny.tokenizer().save_pretrained(place)
    generator, files = torch.Generator().manual_seed(0), {}

    def store(name: str, shapes: dict[str, tuple[int, ...]]) -> None:
        tensors = {key: torch.ones(shape) if len(shape) == 1 else
                   torch.randn(shape, generator=generator) / shape[1] ** 0.5 for key, shape in shapes.items()}
        save_file(tensors, place / name)
        files.update(dict.fromkeys(tensors, name))

    store("outside.safetensors", {"model.embed_tokens.weight": (tiny.VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)})
    for k in range(LAYERS):
        inside = {f"self_attn.{m}_proj.weight": (WIDTH, WIDTH) for m in "qkvo"}
        inside |= {f"mlp.{m}_proj.weight": (INNER, WIDTH) for m in ("gate", "up")} | {
            "mlp.down_proj.weight": (WIDTH, INNER), "input_layernorm.weight": (WIDTH,),
            "post_attention_layernorm.weight": (WIDTH,)}
        store(f"block-{k}.safetensors", {f"model.layers.{k}.{name}": shape for name, shape in inside.items()})
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return place


@pytest.fixture
def group():
    """A control group of LIMIT bytes of memory and no swap."""
    try:
        GROUP.mkdir(exist_ok=True)
        (GROUP / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"limiting the memory of a process needs root and control groups of version 1 ({error})")
    yield GROUP
    GROUP.rmdir()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_takes_three_blocks_of_memory_whatever_the_size_of_the_model(large, group, tmp_path):
    budget = 20_000_000
    assert LAYERS * BLOCK > 4 * LIMIT
    done = subprocess.run([sys.executable, "-c", WORK, group, large, tmp_path / "p", str(budget)], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["there"] == pytest.approx(LIMIT, rel=0.01) and found["layers"] == 7 * LAYERS
    assert found["removed"] == LAYERS * (4 * WIDTH**2 + 3 * WIDTH * INNER) // 2
    outside = 4 * tiny.VOCABULARY * WIDTH
    used = found["peak"] - found["bare"]
    print(f"{used / BLOCK:.2f} blocks above the {found['bare'] / 1e6:.0f} MB of the bare interpreter")
    assert used <= 3 * BLOCK + 2 * outside + budget, f"{used / BLOCK:.2f} blocks"
