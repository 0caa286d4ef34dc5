"""Layer errors against the equations in float64, on planted noise, and riding along with other measurements."""

import copy
from dataclasses import replace
from math import log10

import pytest
import torch
from scipy.linalg import hadamard
from shapes import make

from lib.analysis.likelihood import Head, segment_nll
from lib.analysis.snr import Dense, layer_error, measuring
from lib.errors import InputError
from lib.inputs import models, tiny
from lib.pruning.blocks import find_blocks, linear_layers, weight_matrix
from lib.pruning.driver import applied, prune

WINDOWS = torch.randint(0, 256, (5, 32), generator=torch.Generator().manual_seed(0))
BATCHES = WINDOWS.split([1, 3, 1])
@torch.no_grad()
def observe(model, windows) -> tuple[dict, dict, list]:
    """(inputs of linears, outputs of blocks, final states) in float64, one window at a time."""
    inputs, outputs, final, hooks = {}, {}, [], []
    for k, block in enumerate(find_blocks(model)[1]):
        def see_block(_, __, output, k=k):
            outputs.setdefault(k, []).append((output[0] if isinstance(output, tuple) else output)[0].double())

        hooks.append(block.register_forward_hook(see_block))
        for name, linear in linear_layers(block).items():
            def see(_, args, key=(k, name)):
                inputs.setdefault(key, []).append(args[0].flatten(0, -2).double())

            hooks.append(linear.register_forward_pre_hook(see))
    for window in windows:
        final.append(model.base_model(input_ids=window[None], use_cache=False)[0][0].double())
    for hook in hooks:
        hook.remove()
    return inputs, outputs, final


def reference(dense, pruned, windows) -> dict:
    """{(layer, module, kind): error} from the equations, sums over windows before the ratio."""
    X, blocks, final = observe(dense, windows)
    X_, blocks_, final_ = observe(pruned, windows)
    errors = {}

    def ratio(pairs):
        noise = signal = 0.0
        for a, b in pairs:
            noise += float(((a - b) ** 2).sum())
            signal += float((a ** 2).sum())
        return noise / signal

    for (k, name) in X:
        W, W_ = (weight_matrix(linear_layers(find_blocks(m)[1][k])[name]).double() for m in (dense, pruned))
        for kind, other in (("local", X), ("propagated", X_)):
            errors[k, name, kind] = ratio((x @ W.T, x_ @ W_.T) for x, x_ in zip(X[k, name], other[k, name],
                                                                                strict=True))
    for k in blocks:
        errors[k, "block", "propagated"] = ratio(zip(blocks[k], blocks_[k], strict=True))
    errors[len(blocks), "final", "propagated"] = ratio(zip(final, final_, strict=True))
    return errors


def by_place(rows) -> dict:
    return {(r["layer"], r["module"], r["kind"]): r["error"] for r in rows}


@pytest.mark.parametrize("method", ["wanda", "sparsegpt"])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-cohere", "tiny-gpt-neox", "tiny-bloom", "gpt2",
                                  "opt"])
def test_errors_equal_the_equations_in_float64(name, method):
    model = make(name)
    dense, untouched = Dense(model), copy.deepcopy(model)
    with applied(model, prune(model, WINDOWS, method, 0.5)):
        rows, left_out = layer_error(dense, model, BATCHES)
        expected = reference(untouched, model, WINDOWS)
    assert left_out == {"local": 0, "propagated": 0, "expert": 0}
    assert by_place(rows) == pytest.approx(expected, rel=1e-4)
    assert {r["tokens"] for r in rows} == {WINDOWS.numel()}
    for row in rows:
        assert row["error"] == row["noise"] / row["signal"]
        assert row["snr_db"] == pytest.approx(-10 * log10(row["error"]))


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-cohere"])
def test_local_and_propagated_agree_exactly_where_no_pruned_layer_comes_before(name):
    model = make(name)
    dense = Dense(model)
    with applied(model, prune(model, WINDOWS, "wanda", 0.5)):
        errors = by_place(layer_error(dense, model, BATCHES)[0])
    agree = {(layer, module) for layer, module, kind in errors if kind == "local"
             and errors[layer, module, "propagated"] == pytest.approx(errors[layer, module, "local"], rel=1e-5)}
    before = {(0, f"self_attn.{x}_proj") for x in "qkv"}
    # Cohere's MLP stands beside attention and has the same input.
    assert agree == before | ({(0, "mlp.gate_proj"), (0, "mlp.up_proj")} if name == "tiny-cohere" else set())


def test_planted_noise_on_white_inputs_has_the_planted_snr():
    """Each token once, its embedding a row of a Hadamard matrix: X^T X is a multiple of the identity, hence
    error = ||W - W'||_F^2 / ||W||_F^2."""
    model = make("tiny-llama")
    model.model.embed_tokens.weight[:256] = torch.tensor(hadamard(256)[:, :64], dtype=torch.float32)
    model.model.layers[0].input_layernorm.weight.fill_(0.7)
    W = model.model.layers[0].self_attn.k_proj.weight
    dense = Dense(model)
    noise = torch.randn(W.shape, generator=torch.Generator().manual_seed(1))
    for planted in (3.0, 20.0, 60.0):
        change = noise * (W.norm() / noise.norm()) * 10 ** (-planted / 20)
        W += change
        rows, _ = layer_error(dense, model, [torch.arange(256)[None]])
        W -= change
        row, = (r for r in rows if (r["layer"], r["module"], r["kind"]) == (0, "self_attn.k_proj", "local"))
        assert row["snr_db"] == pytest.approx(planted, abs=1e-3)
        propagated, = (r for r in rows if (r["layer"], r["module"]) == (0, "self_attn.k_proj") and r is not row)
        assert propagated["snr_db"] == pytest.approx(planted, abs=1e-2)


def test_what_pruning_did_not_change_is_left_out_and_counted():
    model = make("tiny-llama")
    whole = prune(model, WINDOWS, "wanda", 0.5)
    layer = "model.layers.1.mlp.gate_proj"
    dense = Dense(model)
    with applied(model, replace(whole, masks={layer: whole.masks[layer]})):
        rows, left_out = layer_error(dense, model, BATCHES)
    places = by_place(rows).keys()
    assert [p for p in places if p[2] == "local"] == [(1, "mlp.gate_proj", "local")]
    changed = {(1, "mlp.gate_proj"), (1, "mlp.down_proj"), (1, "block"), (4, "final")}
    changed |= {(k, m) for k in (2, 3) for m in [*linear_layers(model.model.layers[k]), "block"]}
    assert {p[:2] for p in places if p[2] == "propagated"} == changed
    assert left_out == {"local": 4 * 7 - 1, "propagated": 4 * 8 + 1 - len(changed), "expert": 0}
    rows, left_out = layer_error(dense, model, BATCHES)
    assert rows == [] and left_out == {"local": 28, "propagated": 33, "expert": 0}


def test_sums_are_pooled_before_the_ratio():
    model = make("tiny-llama")
    dense = Dense(model)
    ids = [torch.randint(0, 256, (1, n), generator=torch.Generator().manual_seed(n)) for n in (3, 60, 9)]
    with applied(model, prune(model, WINDOWS, "wanda", 0.5)):
        pooled = layer_error(dense, model, ids)[0]
        alone = [layer_error(dense, model, [i])[0] for i in ids]
    for k, row in enumerate(pooled):
        each = [rows[k] for rows in alone]
        assert row["noise"] == pytest.approx(sum(r["noise"] for r in each), rel=1e-5)
        assert row["error"] == pytest.approx(sum(r["noise"] for r in each) / sum(r["signal"] for r in each), rel=1e-5)
    means = [sum(rows[k]["error"] for rows in alone) / 3 for k in range(len(pooled))]
    assert max(abs(mean / row["error"] - 1) for mean, row in zip(means, pooled, strict=True)) > 0.02


def test_padding_and_the_prefix_do_not_count_and_perplexity_is_the_same_bit_for_bit():
    model, tokenizer = models.load("tiny-llama")
    dense, texts = Dense(model), ["a short one", "Ein deutlich laengerer Satz.", "x" * 50]
    ids = [torch.tensor([[tiny.BOS, *tokenizer(t)["input_ids"]]]) for t in texts]
    with applied(model, prune(model, WINDOWS, "wanda", 0.5)):
        head = Head(model)  # made before: it runs the model on tokens of its own
        plain = segment_nll(model, tokenizer, range(3), texts, head=head)
        with measuring(dense, model, skipped=1) as errors:
            scored = segment_nll(model, tokenizer, range(3), texts, head=head)
        with measuring(dense, model, skipped=1) as each:
            for row in ids:
                model(input_ids=row)
        with_prefix = by_place(layer_error(dense, model, ids)[0])
    assert scored.equals(plain)
    ours, unpadded = errors.rows(), each.rows()
    assert {r["tokens"] for r in (*ours, *unpadded)} == {len("".join(texts))}
    assert by_place(ours) == pytest.approx(by_place(unpadded), rel=1e-5)
    assert by_place(ours) != pytest.approx(with_prefix, rel=1e-3)


def test_right_padding_gives_what_single_sequences_give():
    model = make("tiny-gemma3")
    dense = Dense(model)
    lengths = (7, 25, 32)
    real = torch.arange(32)[None] < torch.tensor(lengths)[:, None]
    with applied(model, prune(model, WINDOWS, "wanda", 0.5)):
        with measuring(dense, model, skipped=1) as padded:
            model.base_model(input_ids=WINDOWS[:3], attention_mask=real.long(), use_cache=False)
        with measuring(dense, model, skipped=1) as single:
            for n, row in zip(lengths, WINDOWS, strict=False):
                model.base_model(input_ids=row[None, :n], use_cache=False)
    assert by_place(padded.rows()) == pytest.approx(by_place(single.rows()), rel=1e-5)
    assert padded.rows()[0]["tokens"] == single.rows()[0]["tokens"] == sum(lengths) - 3


def test_local_noise_is_taken_at_full_precision_whatever_the_process_allows():
    model = make("tiny-llama")
    W = model.model.layers[0].self_attn.q_proj.weight
    dense, row = Dense(model), {}
    W[:, :32] *= 1 + 1e-4  # far less than what shorter factors lose
    before = torch.get_float32_matmul_precision()
    for precision in ("highest", "medium"):
        torch.set_float32_matmul_precision(precision)
        try:
            rows, _ = layer_error(dense, model, [WINDOWS])
        finally:
            torch.set_float32_matmul_precision(before)
        row[precision] = next(r["noise"] for r in rows if (r["module"], r["kind"]) == ("self_attn.q_proj", "local"))
    X = observe(model, WINDOWS)[0][0, "self_attn.q_proj"]
    change = W.double() - weight_matrix(dense.layers[0]["self_attn.q_proj"]).double()
    expected = float((torch.cat(X) @ change.T).square().sum())
    assert row["highest"] == row["medium"] == pytest.approx(expected, rel=1e-5)


def test_one_block_of_one_batch_is_held():
    model = make("tiny-llama")
    dense = Dense(model)
    widths = [weight_matrix(linear).shape[0] for linear in linear_layers(model.model.layers[0]).values()]
    peaks = []
    with applied(model, prune(model, WINDOWS, "wanda", 0.5)), measuring(dense, model) as errors:
        def weigh(*_):
            fields = vars(errors).values()
            values = [v for f in fields for v in (f.values() if isinstance(f, dict) else [f])]
            peaks.append(sum(v.numel() for v in values if isinstance(v, torch.Tensor)))

        hooks = [m.register_forward_hook(weigh) for k in range(4)
                 for m in (*dense.layers[k].values(), *linear_layers(model.model.layers[k]).values())]
        for _ in range(4):
            model(input_ids=WINDOWS)
        for hook in hooks:
            hook.remove()
    sums = 3 * (4 * 8 + 1)  # scalars
    assert max(peaks) > WINDOWS.numel() * sum(widths)  # what is weighed is what is held
    assert max(peaks) <= WINDOWS.numel() * (sum(widths) + 64) + sums
    assert not errors._outputs


def test_experts_are_left_out_and_counted():
    model = make("mixtral")
    dense, untouched = Dense(model), copy.deepcopy(model)
    with applied(model, prune(model, WINDOWS, "magnitude", 0.5)), torch.no_grad():
        rows, left_out = layer_error(dense, model, BATCHES)
        expected = [m.base_model(input_ids=WINDOWS)[0].double() for m in (untouched, model)]
    assert left_out["expert"] == 3 * 4 * 2 and not any("expert" in row["module"] for row in rows)
    error = (expected[0] - expected[1]).square().sum() / expected[0].square().sum()
    assert by_place(rows)[3, "final", "propagated"] == pytest.approx(float(error), rel=1e-4)


def test_hooks_are_gone_afterwards_and_wrong_use_is_refused():
    model, other = make("tiny-llama"), make("tiny-gemma3")
    dense = Dense(model)
    with pytest.raises(InputError, match="do not fit"), measuring(dense, other):
        pass
    with pytest.raises(InputError, match="use_cache=False"), measuring(dense, model):
        model(input_ids=WINDOWS, use_cache=True)
    left = torch.ones_like(WINDOWS)
    left[:, 0] = 0
    with pytest.raises(InputError, match="on the right"), measuring(dense, model):
        model(input_ids=WINDOWS, attention_mask=left)
    for module in (*model.modules(), *dense.blocks.modules()):
        assert not module._forward_hooks and not module._forward_pre_hooks
