"""Overlap of masks: packed bits in, rows out. A mask is one bit a weight, 1 = kept, row after row."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from safetensors import safe_open

from lib.errors import InputError

FORMAT = 2  # of lib.pruning.files
DRAW = ("method", "calibration", "budget", "seed")  # what tells apart the masks of one model, sparsity and pattern
COUNTS = ("weights", "undetermined", "removed", "other_removed", "both")


class Masks(NamedTuple):
    """One pruned model: by full name of the linear layer, `bits` as np.packbits gives them for the flattened
    bool [out, in], and `shapes` (out, in). `group`: "row", "run" (n:m, inside rows), "matrix" or "block"."""

    bits: Mapping[str, np.ndarray]
    shapes: Mapping[str, tuple[int, int]]
    group: str


def pack(masks: Mapping[str, np.ndarray], group: str) -> Masks:
    """bool [out, in] by name, True = kept -> Masks"""
    return Masks({name: np.packbits(mask) for name, mask in masks.items()},
                 {name: mask.shape for name, mask in masks.items()}, group)


def read(path: Path) -> Masks:
    """The masks of a file of lib.pruning.files, or of a folder with a file a block; a matrix is read when it is asked
    for. Raises InputError when a file is of another format."""
    opened, shapes = {}, {}
    for place in sorted(path.glob("block-*.safetensors")) if path.is_dir() else [path]:
        file = safe_open(place, framework="numpy")
        about = json.loads((file.metadata() or {}).get("pruned", "{}"))
        if about.get("format") != FORMAT:
            raise InputError(f"{place} is not a pruned model of format {FORMAT}; prune the model again")
        shapes |= {name: tuple(shape) for name, shape in about["shapes"].items()}
        opened |= dict.fromkeys(about["shapes"], file)
    return Masks(_Stored(opened), shapes, about["group"])


class _Stored(Mapping):
    def __init__(self, files):
        self.files = files  # by name of the matrix

    def __getitem__(self, name: str) -> np.ndarray:
        return self.files[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def place(name: str) -> tuple[int, str]:
    """"model.layers.3.self_attn.q_proj" -> (3, "self_attn.q_proj"): the block and the module inside it."""
    before, layer, module = re.split(r"\.(\d+)\.", name, maxsplit=1)
    return int(layer), module


def overlap(masks: Mapping[tuple[str, str, str, int], Masks], nonzero: Masks | None = None) -> list[dict]:
    """Masks by DRAW -> one row a pair and matrix, each pair once, in the order given.

    `jaccard` = `both` / either, of the sets of removed weights; `chance`, of masks that are independent given how
    many each removes: of `removed` and `other_removed` among n weights, removed * other_removed / n are
    `expected` in both. Where both methods compare within rows (or runs), so row by row, else in the whole matrix.
    Two approximations: the expected ratio is taken as the ratio of expectations (less than 0.001 apart from a
    thousand weights on), and a mask of blocks as one of the whole matrix (its blocks lose equal shares).

    `nonzero`: kept = not zero in the dense model. The other weights are `undetermined`: no method decides about
    them, and they are left out of everything else, `weights` included. With nothing removed, jaccard is NaN.
    Raises InputError when the masks are not of one model.
    """
    draws, rows = list(masks), []
    shapes = masks[draws[0]].shapes
    for draw, other in [*masks.items(), ("the dense model", nonzero)]:
        if other is not None and dict(other.shapes) != dict(shapes):
            raise InputError(f"{draw} has other layers or shapes than {draws[0]}; compare the masks of one model")
    within_rows = np.array([masks[draw].group in ("row", "run") for draw in draws])
    for name, shape in shapes.items():
        counted = _words(np.packbits(np.ones(shape, bool)) if nonzero is None else nonzero.bits[name])
        removed = np.array([counted & ~_words(masks[draw].bits[name]) for draw in draws])
        both = [np.bitwise_count(removed[k] & removed).sum(axis=1, dtype=np.int64) for k in range(len(draws))]
        by_row, n_row = _row_counts(removed, shape), _row_counts(counted[None], shape)[0]
        total, n = by_row.sum(axis=1), int(n_row.sum())
        expected = np.where(within_rows[:, None] & within_rows, (by_row / np.maximum(n_row, 1)) @ by_row.T,
                            np.outer(total, total) / max(n, 1))
        layer, module = place(name)
        for i, j in zip(*np.triu_indices(len(draws), 1), strict=True):
            rows.append(dict(zip(DRAW, draws[i], strict=True))
                        | dict(zip((f"other_{name}" for name in DRAW), draws[j], strict=True))
                        | {"layer": layer, "module": module, "weights": n, "undetermined": int(np.prod(shape)) - n,
                           "removed": int(total[i]), "other_removed": int(total[j]), "both": int(both[i][j]),
                           "expected": float(expected[i, j])})
    return _ratios(pd.DataFrame(rows)).to_dict("records") if rows else []


def pooled(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Rows of `overlap` summed by these columns: counts first, then the ratios, as if the matrices were one."""
    return _ratios(rows.groupby(by, sort=False)[[*COUNTS, "expected"]].sum().reset_index())


def _ratios(rows: pd.DataFrame) -> pd.DataFrame:
    size, both, expected = rows["removed"] + rows["other_removed"], rows["both"], rows["expected"]
    return rows.assign(jaccard=both / (size - both), chance=expected / (size - expected))


def _words(bits: np.ndarray) -> np.ndarray:
    """uint8 [bytes] -> uint64 [ceil(bytes / 8)], filled up with zeros."""
    return np.pad(bits, (0, -len(bits) % 8)).view(np.uint64)


def _row_counts(words: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """uint64 [k, words] -> set bits by row of the matrix [k, out]"""
    if shape[1] % 64:
        bits = np.unpackbits(words.view(np.uint8), axis=1, count=shape[0] * shape[1])
        return bits.reshape(-1, *shape).sum(axis=2, dtype=np.int64)
    return np.bitwise_count(words).reshape(len(words), shape[0], -1).sum(axis=2, dtype=np.int64)
