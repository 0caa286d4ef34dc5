"""Seconds and memory of pruning: lib.pruning against the published algorithms, and against what it cannot do without.

    python -m benchmarks.pruning [--models gemma-3-270m smollm2-135m] [--windows 64] [--seqlen 256] [--dtype mixed]
        [--language en] [--repeats 1] [--device cpu|cuda] [--random-weights llama-3-8b]

Prints one row a model and method (benchmarks/README.md says what the columns are), and writes them as parquet.
"""

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import agreement, measured
from benchmarks.measured import Setting
from lib.errors import InputError
from lib.inputs import models
from lib.paths import CACHE

OUT = CACHE / "benchmarks" / "pruning.parquet"
METHODS = ("wanda", "sparsegpt")
PARTIES = ("floor", "ours", "published")


def alone(function, *given):
    """The function's result from a process of its own, so that neither memory nor warm caches are shared. It is
    forked from a server that has imported all modules and nothing else."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.agreement", "transformers.models.auto.modeling_auto"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *given).result()


def compare(setting: Setting, repeats: int, folder: Path) -> pd.DataFrame:
    """One row a method. Who is measured first changes from repeat to repeat; seconds and peaks are medians."""
    checks = alone(agreement.check, setting)
    rows = []
    for method in METHODS:
        runs: dict[str, list[dict]] = {party: [] for party in PARTIES}
        for r in range(repeats):
            for party in PARTIES[r % 3:] + PARTIES[:r % 3]:
                runs[party].append(alone(measured.run, setting, party, method, folder / party))
                print(f"{setting.model} {method} {party}: {runs[party][-1]['seconds']:.3g} s", file=sys.stderr)
        middle = {party: pd.DataFrame(runs[party]).median() for party in PARTIES}
        seconds = {party: middle[party]["seconds"] for party in PARTIES}
        rows.append({"method": method, "seconds": seconds["ours"], "published_seconds": seconds["published"],
                     "floor_seconds": seconds["floor"], "floor_gram_seconds": middle["floor"]["gram_seconds"],
                     "speedup": seconds["published"] / seconds["ours"],
                     "over_floor": seconds["ours"] / seconds["floor"],
                     "peak_mb": middle["ours"]["peak_mb"], "published_peak_mb": middle["published"]["peak_mb"],
                     "weights": int(middle["ours"]["weights"]),
                     "differing": differences(folder / "ours", folder / "published")} | checks[method])
    return pd.DataFrame(rows)


def differences(ours: Path, published: Path) -> int:
    """How many weights are zero in one of the two pruned models alone."""
    from safetensors.numpy import load_file

    ours, published = load_file(ours), load_file(published)
    if ours.keys() != published.keys():
        raise InputError(f"not the same layers were pruned: {sorted(ours.keys() ^ published.keys())}")
    return sum(int(np.bitwise_count(bits ^ published[name]).sum()) for name, bits in ours.items())


def benchmark(words: argparse.Namespace) -> pd.DataFrame:
    """All rows, with what they were measured on in front."""
    if not measured.HIGH_WATER.exists():
        raise InputError(f"peak memory is read from {measured.HIGH_WATER.parent}, which only Linux has; run this there")
    if any(number is not None and number < 1 for number in (words.repeats, words.windows, words.seqlen)):
        raise InputError("repeats, windows and seqlen must be at least 1")
    for name in [] if words.random_weights else words.models:
        models.check(name)
    device = words.device or measured.default_device()
    names, shape = ([words.random_weights], (128, 2048)) if words.random_weights else (words.models, (64, 256))
    shape = tuple(default if given is None else given for given, default in zip((words.windows, words.seqlen), shape,
                                                                                strict=True))
    frames = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            setting = Setting(name, words.dtype, device, Path(folder) / "ids.npy")
            facts = measured.draw(setting, shape, words.corpus, words.language)
            frame = compare(setting, words.repeats, Path(folder))
        front = {"model": name, "dtype": words.dtype, "device": device, "sparsity": setting.sparsity,
                 "windows": shape[0], "seqlen": shape[1], "repeats": words.repeats} | facts
        frames.append(pd.DataFrame([front] * len(frame)).join(frame))
    return pd.concat(frames, ignore_index=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__.split("\n")[0])
    made.add_argument("--models", nargs="+", default=["gemma-3-270m", "smollm2-135m"])
    made.add_argument("--random-weights", choices=measured.RANDOM, help="a model of that shape instead, with random "
                      "token ids")
    made.add_argument("--windows", type=int, help="64; with random weights 128")
    made.add_argument("--seqlen", type=int, help="256; with random weights 2048")
    made.add_argument("--dtype", choices=("mixed", "float32", "bfloat16"), default="mixed")
    made.add_argument("--corpus", default="chromium")
    made.add_argument("--language", default="en")
    made.add_argument("--repeats", type=int, default=1)
    made.add_argument("--device", choices=("cpu", "cuda"), help="default: CUDA where there is one")
    made.add_argument("--out", type=Path, default=OUT)
    return made


def main(words: list[str] | None = None) -> int:
    """Print the table and write it; exit code 0, or 2 for what cannot be run."""
    given = parser().parse_args(words)
    try:
        table = benchmark(given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    given.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = given.out.with_name(f".{given.out.name}.{os.getpid()}")
    table.to_parquet(temporary, index=False)
    os.replace(temporary, given.out)
    for _, row in table.iterrows():
        print(row.to_string(float_format="{:.4g}".format), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
