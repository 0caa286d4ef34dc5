import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.measured import peak_memory, reset_memory
from lib.analysis import likelihood
from lib.analysis.likelihood import Head, batches, segment_nll
from lib.errors import InputError
from lib.inputs import assets, models, tiny

TEXTS = ["The lamp stands on the table.", "Ein Brief.", "Mvua inanyesha leo asubuhi na mapema sana.", "x" * 90]


def naive(model, tokenizer, text):
    """One segment, all logits, log-softmax in float64, a loop over positions."""
    ids = [models.prefix_token(tokenizer), *tokenizer(text, add_special_tokens=False)["input_ids"]]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    return -sum(float(torch.log_softmax(logits[t - 1], 0)[ids[t]]) for t in range(1, len(ids)))


@pytest.mark.parametrize("name", sorted(tiny.RECIPES))
def test_equals_a_naive_computation_on_every_architecture(name):
    model, tokenizer = models.load(name)
    table = segment_nll(model, tokenizer, list("abcd"), TEXTS)
    np.testing.assert_allclose(table["nll"], [naive(model, tokenizer, t) for t in TEXTS], rtol=1e-5)
    assert table["tokens"].tolist() == table["bytes"].tolist() == [len(t) for t in TEXTS]


def test_scaled_and_capped_logits_follow_the_model():
    model, tokenizer = models.load("tiny-cohere")
    assert Head(model).factor != 1.0
    model, tokenizer = models.load("tiny-gemma3")
    model.config.final_logit_softcapping = 3.0
    table = segment_nll(model, tokenizer, ["a"], TEXTS[:1])
    assert table["nll"][0] == pytest.approx(naive(model, tokenizer, TEXTS[0]), rel=1e-5)


def test_small_chunks_and_small_batches_give_the_same(monkeypatch):
    model, tokenizer = models.load("tiny-llama")
    whole = segment_nll(model, tokenizer, list("abcd"), TEXTS)
    monkeypatch.setattr(likelihood, "LOGIT_BYTES", 4 * tiny.VOCABULARY * 7)
    assert Head(model).chunk == 7
    pieces = segment_nll(model, tokenizer, list("abcd"), TEXTS, batch_tokens=1)
    np.testing.assert_allclose(pieces["nll"], whole["nll"], rtol=1e-6)


def test_the_first_segments_have_the_same_bits_however_many_follow():
    model, tokenizer = models.load("tiny-llama")
    texts = [f"Sentence number {k} " + "with more words " * (k % 5) for k in range(likelihood.STRETCH + 9)]
    many = segment_nll(model, tokenizer, range(len(texts)), texts)
    few = segment_nll(model, tokenizer, range(likelihood.STRETCH), texts[:likelihood.STRETCH])
    assert (many["nll"][:likelihood.STRETCH] == few["nll"]).all()


def test_batches_hold_every_row_once_and_keep_to_their_budget():
    lengths = np.random.default_rng(0).integers(1, 60, 137).tolist()
    made = list(batches(lengths, 200))
    assert sorted(r for rows in made for r in rows) == list(range(137))
    assert all(len(rows) == 1 or len(rows) * (max(lengths[r] for r in rows) + 1) <= 200 for rows in made)


def test_unscorable_segments_are_refused():
    model, tokenizer = models.load("tiny-llama")
    with pytest.raises(InputError, match="or more are needed"):
        segment_nll(model, tokenizer, ["empty"], [""])
    with pytest.raises(InputError, match="512"):
        segment_nll(model, tokenizer, ["long"], ["x" * 600])


def test_without_a_prefix_the_first_token_and_its_bytes_are_left_out():
    model, tokenizer = models.load("tiny-llama")
    tokenizer.bos_token = tokenizer.eos_token = None
    assert models.prefix_token(tokenizer) is None
    table = segment_nll(model, tokenizer, ["a"], ["abcdef"])
    assert (table["tokens"][0], table["bytes"][0]) == (5, 5)


def test_an_unknown_rule_for_logits_is_refused():
    model, _ = models.load("tiny-llama")
    forward = model.forward

    def scaled(*words, **named):
        out = forward(*words, **named)
        out.logits = out.logits * 2
        return out

    model.forward = scaled
    with pytest.raises(InputError, match="Head"):
        Head(model)


def test_logits_of_a_large_vocabulary_are_never_all_there():
    """Of Gemma's 262,144 words: 800 positions at once would be 0.84 GB of logits and as much of their log-softmax."""
    config = LlamaConfig(vocab_size=262_144, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                         num_attention_heads=2, max_position_embeddings=512)
    model, tokenizer = LlamaForCausalLM(config).requires_grad_(False).eval(), models.load("tiny-llama")[1]
    before = reset_memory("cpu")
    table = segment_nll(model, tokenizer, list("abcd"), ["x" * 200] * 4)
    assert table["tokens"].sum() == 800
    assert peak_memory("cpu") - before < 1.2 * 2 * likelihood.LOGIT_BYTES + 100_000_000


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(models.KNOWN))
def test_equals_a_naive_computation_on_the_real_models(name):
    if not assets.is_complete(name):
        pytest.skip(f"asset {name} is not in data/cache; `python -m lib.inputs.assets {name}` fetches it")
    torch.set_float32_matmul_precision("highest")
    model, tokenizer = models.load(name)
    texts = TEXTS[:3]
    table = segment_nll(model, tokenizer, list("abc"), texts)
    np.testing.assert_allclose(table["nll"], [naive(model, tokenizer, t) for t in texts], rtol=1e-4)
