"""Overlap against sets of places, on masks of known overlap."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch

from lib.analysis.masks import DRAW, FORMAT, overlap, pack, place, pooled, read
from lib.errors import InputError
from lib.inputs import models
from lib.pruning import files
from lib.pruning.driver import prune

A, B, C = (("wanda", "ar", "tokens", 0), ("wanda", "de", "tokens", 0), ("wanda", "de", "tokens", 42))
NAMES = ("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj", "model.layers.11.mlp.up_proj")


def masks(seed, shapes, removed=0.5):
    """Independent masks that remove the same share at random in every row."""
    rng = np.random.default_rng(seed)
    return {name: rng.random(shape).argsort(axis=1) >= int(removed * shape[1]) for name, shape in shapes.items()}


def reference(kept, other, nonzero):
    """(jaccard, chance given row counts, chance given the matrix's, undetermined) from Python sets."""
    out, width = kept.shape
    sets = [{(i, j) for i in range(out) for j in range(width) if not mask[i, j] and nonzero[i, j]}
            for mask in (kept, other)]
    both, either = len(sets[0] & sets[1]), len(sets[0] | sets[1])
    expected = [0.0, 0.0]
    for i in range(out):
        a, b = (len({p for p in s if p[0] == i}) for s in sets)
        expected[0] += a * b / max(1, sum(map(bool, nonzero[i])))
    expected[1] = len(sets[0]) * len(sets[1]) / nonzero.sum()
    chances = [e / (len(sets[0]) + len(sets[1]) - e) for e in expected]
    return both / either, *chances, nonzero.size - nonzero.sum()


@pytest.mark.parametrize("shape", [(5, 64), (6, 128), (7, 13), (3, 3), (1, 1000), (9, 8), (4, 72)])
@pytest.mark.parametrize("group", ["row", "matrix"])
@pytest.mark.parametrize("zeros", [0.0, 0.1])
def test_equals_sets_of_places_at_every_width(shape, group, zeros):
    rng = np.random.default_rng(sum(shape))
    shapes = dict.fromkeys(NAMES[:2], shape)
    drawn = {draw: {name: rng.random(shape) > 0.2 + 0.6 * rng.random((shape[0], 1)) for name in shapes}
             for draw in (A, B, C)}
    nonzero = {name: rng.random(shape) >= zeros for name in shapes}
    packed = {draw: pack(mask, group) for draw, mask in drawn.items()}
    rows = overlap(packed, pack(nonzero, "row") if zeros else None)
    assert len(rows) == 3 * len(shapes)
    for row in rows:
        one, other = (tuple(row[p + name] for name in DRAW) for p in ("", "other_"))
        name = f"model.layers.{row['layer']}.{row['module']}"
        jaccard, by_row, by_matrix, left_out = reference(drawn[one][name], drawn[other][name], nonzero[name])
        assert row["jaccard"] == pytest.approx(jaccard)
        assert row["chance"] == pytest.approx(by_row if group == "row" else by_matrix)
        assert row["undetermined"] == left_out and row["weights"] + left_out == np.prod(shape)
        assert row["removed"] == (~drawn[one][name] & nonzero[name]).sum()


def test_identical_and_disjoint_masks():
    kept = masks(0, {NAMES[0]: (8, 36)})
    packed = {A: pack(kept, "row"), B: pack(kept, "row"), C: pack({NAMES[0]: ~kept[NAMES[0]]}, "row")}
    same, *disjoint = overlap(packed)
    assert same["jaccard"] == 1.0 and [row["jaccard"] for row in disjoint] == [0.0, 0.0]
    assert same["undetermined"] == 0 and same["weights"] == 8 * 36


@pytest.mark.parametrize("s", [0.25, 0.5, 0.75])
def test_independent_masks_overlap_by_chance(s):
    """s / (2 - s): at one half a third."""
    shapes = {NAMES[0]: (400, 512)}
    packed = {draw: pack(masks(k, shapes, s), "row") for k, draw in enumerate((A, B, C))}
    for row in overlap(packed):
        assert row["chance"] == pytest.approx(s / (2 - s))
        assert row["jaccard"] == pytest.approx(s / (2 - s), abs=0.005)


def test_chance_knows_the_counts_of_rows_only_where_methods_compare_rows():
    """Independent masks that empty the same rows overlap: by chance for a method of rows, not for one of matrices."""
    rng = np.random.default_rng(1)
    share = np.repeat([[0.1], [0.9]], 100, axis=0)
    drawn = [{NAMES[0]: rng.random((200, 300)) > share} for _ in range(2)]
    row, matrix, mixed = (overlap(dict(zip((A, B), map(pack, drawn, groups), strict=True)))[0]
                          for groups in (("row", "run"), ("matrix", "block"), ("row", "matrix")))
    assert row["jaccard"] == matrix["jaccard"] == pytest.approx(row["chance"], abs=0.01)
    assert matrix["chance"] == mixed["chance"] == pytest.approx(1 / 3, abs=0.01)
    assert matrix["chance"] < row["chance"] - 0.2


def test_undetermined_weights_do_not_flatter_the_overlap():
    """Every method removes what is zero already; counted in, independent masks would seem alike."""
    shapes = {NAMES[0]: (50, 400)}
    zero = masks(9, shapes, 0.3)[NAMES[0]]  # False in 30 % of places
    drawn = {}
    for k, draw in enumerate((A, B)):
        score = np.where(zero, np.random.default_rng(k).random(zero.shape), -1.0)
        drawn[draw] = pack({NAMES[0]: score.argsort(axis=1).argsort(axis=1) >= 200}, "row")
    left_out, = overlap(drawn, pack({NAMES[0]: zero}, "row"))
    counted, = overlap(drawn)
    assert left_out["undetermined"] == 50 * 120
    assert left_out["jaccard"] == pytest.approx(left_out["chance"], abs=0.02)
    assert counted["jaccard"] > counted["chance"] + 0.2


def test_pooling_sums_before_it_divides():
    shapes = {NAMES[0]: (4, 30), NAMES[1]: (40, 70), NAMES[2]: (12, 70)}
    packed = {draw: pack(masks(k, shapes), "row") for k, draw in enumerate((A, B, C))}
    table = pd.DataFrame(overlap(packed))
    assert sorted(set(zip(table["layer"], table["module"], strict=True))) == [
        (0, "mlp.up_proj"), (0, "self_attn.q_proj"), (11, "mlp.up_proj")]
    flat = {draw: np.concatenate([~np.unpackbits(m.bits[n], count=np.prod(shapes[n])).astype(bool) for n in NAMES])
            for draw, m in packed.items()}
    whole = pooled(table, ["calibration", "seed", "other_calibration", "other_seed"])
    for row, (a, b) in zip(whole.to_dict("records"), combinations((A, B, C), 2), strict=True):
        assert row["jaccard"] == pytest.approx((flat[a] & flat[b]).sum() / (flat[a] | flat[b]).sum())
        assert row["chance"] == pytest.approx(1 / 3)
    by_module = pooled(table, ["module"])
    assert by_module["weights"].tolist() == [3 * 120, 3 * 52 * 70]


def test_reads_the_files_that_pruning_writes(tmp_path):
    model, _ = models.load("tiny-llama")
    ids = torch.arange(4 * 32).reshape(4, 32) % 256
    packed, kept = {}, {}
    for draw, method in ((A, "wanda"), (B, "sparsegpt")):
        pruned = prune(model, ids, method, 0.5)
        files.save(pruned, tmp_path / f"{method}.safetensors")
        packed[draw] = read(tmp_path / f"{method}.safetensors")
        kept[draw] = {name: mask.numpy() for name, mask in pruned.masks.items()}
        assert list(packed[draw].bits) == list(pruned.masks) and packed[draw].group == pruned.group
        assert [place(name) for name in packed[draw].bits] == [(r["layer"], r["module"]) for r in pruned.layers]
    rows = overlap(packed)
    assert rows == overlap({draw: pack(kept[draw], packed[draw].group) for draw in packed})
    assert len(rows) == 4 * 7 and all(row["jaccard"] > 1.2 * row["chance"] for row in rows)
    assert FORMAT == files.FORMAT


def test_other_files_and_other_models_are_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3, np.uint8)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="not a pruned model"):
        read(tmp_path / "other.safetensors")
    one, two = (pack(masks(0, {NAMES[0]: shape}), "row") for shape in ((4, 8), (8, 4)))
    with pytest.raises(InputError, match="one model"):
        overlap({A: one, B: two})
    with pytest.raises(InputError, match="dense model"):
        overlap({A: one, B: one}, two)
