import mmap

import pandas as pd
import pytest
import torch

from benchmarks import agreement, measured, pruning, published
from lib.pruning.scores import lowest, wanda_score
from lib.pruning.sparsegpt import factor, sparsegpt
from lib.pruning.statistics import Gram, InputNorm

X = torch.randn(6, 50, 300, generator=torch.Generator().manual_seed(0)).cumsum(2)
W = torch.randn(24, 300, generator=torch.Generator().manual_seed(1))


def counted(choices, ours, group) -> dict:
    counts = dict.fromkeys(("checked", "mismatches", "first_mismatches", "near_ties"), 0)
    agreement.tally(counts, choices, ours, group)
    return counts


def value(statistic, X):
    statistic.add(X)
    return statistic.value()


def test_a_run_on_a_tiny_model_has_every_column_and_the_published_masks(tmp_path, capsys):
    out = tmp_path / "made" / "pruning.parquet"
    assert pruning.main(["--models", "tiny-llama", "--windows", "8", "--seqlen", "64", "--corpus", "data/quick/home",
                         "--dtype", "float32", "--device", "cpu", "--out", str(out)]) == 0
    table = pd.read_parquet(out)
    assert table["method"].tolist() == ["wanda", "sparsegpt"]
    assert (table[["seconds", "published_seconds", "floor_seconds", "threads"]] > 0).all(axis=None)
    assert (table[["peak_mb", "published_peak_mb"]] >= 0).all(axis=None)
    assert table["speedup"].tolist() == pytest.approx(table["published_seconds"] / table["seconds"])
    assert table["over_floor"].tolist() == pytest.approx(table["seconds"] / table["floor_seconds"])
    assert (table["floor_gram_seconds"] > 0).tolist() == [False, True]
    assert (table["weights"] == table["checked"]).all() and table["weights"][0] == 4 * (3 * 64 * 64 + 3 * 64 * 128)
    assert (table["first_mismatches"] == table["near_ties"]).all() and (table["mismatches"] <= 4).all()
    assert (table["differing"] < 1e-3 * table["weights"]).all()
    said = capsys.readouterr()
    assert "published_seconds" in said.out and "tiny-llama sparsegpt ours" in said.err


@pytest.mark.parametrize("words, said", [
    (["--models", "tiny-llama", "no-such-model"], "no-such-model"),
    (["--models", "tiny-llama", "--repeats", "0"], "repeats"),
    (["--models", "tiny-llama", "--corpus", "data/quick/home", "--language", "xx"], "xx")])
def test_what_cannot_be_run_is_an_error(words, said, tmp_path, capsys):
    assert pruning.main([*words, "--out", str(tmp_path / "x")]) == 2
    assert said in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_published_sparsegpt_is_ours_over_several_blocks():
    H = value(Gram(), X)
    ours = sparsegpt(W, factor(H), 0.5)
    theirs = published.sparsegpt(W.double(), H.double(), 0.5)
    assert torch.equal(theirs == 0, ours.removed)
    assert torch.allclose(theirs.float(), ours.weights, rtol=0, atol=1e-5 * float(W.abs().max()))
    assert counted(agreement.published_choices(W, H, 0.5), ours.removed, (0, 1))["mismatches"] == 0


def test_the_published_wanda_is_ours():
    linear = torch.nn.Linear(300, 24, bias=False).requires_grad_(False)
    linear.weight.copy_(W)
    observer = published.Wanda(linear)
    for sample in X.split(1):
        observer.add(sample)
    assert torch.equal(observer.mask(0.5), lowest(wanda_score(W, value(InputNorm(), X)), 0.5, "row"))


def test_mismatches_are_counted_and_near_ties_told_apart():
    score = torch.arange(1.0, 9.0).reshape(2, 4).double()
    score[0, 2] = score[0, 1] * (1 + 1e-7)
    removed = lowest(score, 0.5, "row")
    near, far = removed.clone(), removed.clone()
    near[0, [1, 2]] = ~near[0, [1, 2]]
    far[1, [0, 3]] = ~far[1, [0, 3]]
    assert list(counted([(score, removed)], removed, 1).values()) == [8, 0, 0, 0]
    assert list(counted([(score, removed)], near, 1).values()) == [8, 2, 2, 2]
    assert list(counted([(score, removed)], far, 1).values()) == [8, 2, 2, 0]
    twice = [(score, removed)] * 2
    assert list(counted(twice, torch.cat([near, far], 1), 1).values()) == [16, 4, 2, 2]
    whole = agreement.margins(score, lowest(score, 0.5, "matrix"), (0, 1))
    assert whole[:, [0, 3]].tolist() == [[0.8, 0.2], [0.25, 1.0]]


def test_random_weights_have_the_shape_asked_for(tmp_path, monkeypatch):
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 50}
    monkeypatch.setitem(measured.RANDOM, "small", shape)
    setting = measured.Setting("small", "bfloat16", "cpu", tmp_path / "ids.npy")
    assert measured.draw(setting, (3, 16), "chromium", "en")["corpus"] == "random"
    before = torch.get_float32_matmul_precision()
    results = [measured.run(setting, party, "wanda", tmp_path / party) for party in ("ours", "published")]
    torch.set_float32_matmul_precision(before)
    assert [r["weights"] for r in results] == [2 * (64 * 64 * 2 + 32 * 64 * 2 + 64 * 96 * 3)] * 2
    assert pruning.differences(tmp_path / "ours", tmp_path / "published") < 0.05 * results[0]["weights"]


def test_the_high_water_mark_is_of_what_was_used_since_the_reset():
    before = measured.reset_memory("cpu")
    with mmap.mmap(-1, 50 * 2**20) as memory:  # fresh pages, which torch's allocator would not have to ask for
        memory[::4096] = b"1" * len(memory[::4096])
    assert 45 < (measured.peak_memory("cpu") - before) / 2**20 < 80
    before = measured.reset_memory("cpu")
    assert (measured.peak_memory("cpu") - before) / 2**20 < 5
