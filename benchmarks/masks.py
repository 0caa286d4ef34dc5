"""Overlap of 21 masks (seven languages, three draws) of a model with the shapes of Gemma 3 270M, from files.

    python -m benchmarks.masks [blocks]

The masks are random and written to a temporary folder first (263 MB); reading them is part of what is timed.
Prints the measurement and adds it as a row to data/cache/benchmarks/masks.csv. `blocks`: fewer than the 18 for a
quick look.
"""

import json
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import save_file

from lib.analysis.masks import FORMAT, overlap, read
from lib.paths import CACHE

LANGUAGES = ("ar", "de", "en", "es", "ru", "sw", "zh")
DRAWS = [("wanda", language, "tokens", seed) for seed in (0, 42, 1234) for language in LANGUAGES]
BLOCK = {"self_attn.q_proj": (1024, 640), "self_attn.k_proj": (256, 640), "self_attn.v_proj": (256, 640),
         "self_attn.o_proj": (640, 1024), "mlp.gate_proj": (2048, 640), "mlp.up_proj": (2048, 640),
         "mlp.down_proj": (640, 2048)}


def write(path: Path, shapes: dict, rng: np.random.Generator) -> None:
    """A file as lib.pruning.files writes it, each weight kept with probability one half."""
    bits = {name: rng.integers(0, 256, out * width // 8, dtype=np.uint8) for name, (out, width) in shapes.items()}
    save_file(bits, path, metadata={"pruned": json.dumps({"format": FORMAT, "group": "row", "shapes": shapes})})


def main(blocks: int = 18) -> None:
    shapes = {f"model.layers.{k}.{module}": shape for k in range(blocks) for module, shape in BLOCK.items()}
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{k}.safetensors" for k in range(len(DRAWS) + 1)]
        for path in paths:
            write(path, shapes, rng)
        start = time.perf_counter()
        rows = overlap({draw: read(path) for draw, path in zip(DRAWS, paths[:-1], strict=True)}, read(paths[-1]))
        seconds = time.perf_counter() - start
    jaccard, chance = (np.array([row[name] for row in rows]) for name in ("jaccard", "chance"))
    row = {"masks": len(DRAWS), "weights": sum(out * width for out, width in shapes.values()), "rows": len(rows),
           "seconds": round(seconds, 2), "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
           "largest_deviation_from_chance": float(np.abs(jaccard - chance).max()),
           "numpy": np.__version__, "machine": platform.machine()}
    print(pd.Series(row).to_string())
    target = CACHE / "benchmarks" / "masks.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([row]).to_csv(target, mode="a", header=not target.exists(), index=False)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
