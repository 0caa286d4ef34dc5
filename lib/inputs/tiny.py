"""Tiny causal LMs with random weights, one for each way decoder blocks are built, and a byte tokenizer.

They stand in for real models in tests and in the `quick` profile. Weights come from numpy generators seeded
by the parameter's name, so the same bytes result on every machine. They are scaled to keep activations near
unit size, and norms and biases are random as well: pruning changes the output, and unlike text gives unlike
activations.
"""

import zlib

import numpy as np

RECIPE = 1  # raise when a change below changes the weights or the tokenizer
BOS, EOS, VOCABULARY = 256, 257, 258
_IDS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": None, "vocab_size": VOCABULARY}
_ROTARY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
           "max_position_embeddings": 512}

# model type of transformers -> its settings. The windows of Gemma 3 and Mistral are shorter than any test
# sequence, so a block that is given another mask computes something else. Every way to be unlike a square is
# there: few key-value heads, heads wider than hidden / heads (Qwen3), inner widths that are no power of two.
RECIPES = {
    "tiny-llama": ("llama", _ROTARY | {"num_hidden_layers": 4, "num_key_value_heads": 2}),
    "tiny-gemma3": ("gemma3_text", _ROTARY | {
        "num_hidden_layers": 4, "num_key_value_heads": 1, "head_dim": 16, "query_pre_attn_scalar": 16,
        "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2}),
    "tiny-qwen2": ("qwen2", _ROTARY | {"hidden_size": 32, "num_key_value_heads": 2}),
    "tiny-cohere": ("cohere", _ROTARY | {"num_key_value_heads": 2, "logit_scale": 0.5}),
    "tiny-bloom": ("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "tiny-gpt-neox": ("gpt_neox", _ROTARY),
    "tiny-qwen3": ("qwen3", _ROTARY | {"num_key_value_heads": 2, "head_dim": 24}),
    "tiny-mistral": ("mistral", _ROTARY | {"num_key_value_heads": 2, "sliding_window": 8}),
    "tiny-gpt2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "tiny-opt": ("opt", {"hidden_size": 64, "ffn_dim": 128, "word_embed_proj_dim": 64, "num_attention_heads": 4,
                         "num_hidden_layers": 2, "max_position_embeddings": 512}),
    "tiny-mixtral": ("mixtral", _ROTARY | {"intermediate_size": 48, "num_key_value_heads": 2,
                                           "num_local_experts": 6, "num_experts_per_tok": 2}),
}


def context_length(name: str) -> int | None:
    """Longest sequence of a recipe in tokens; None where positions are unlimited (BLOOM's ALiBi)."""
    settings = RECIPES[name][1]
    return settings.get("max_position_embeddings", settings.get("n_positions"))  # GPT-2 has the latter


def config(name: str):
    """The recipe's configuration, of transformers."""
    from transformers import AutoConfig

    kind, settings = RECIPES[name]
    return AutoConfig.for_model(kind, **_IDS, **settings)


def model(name: str):
    """The recipe's model in float32 on the CPU; the same weights at every call."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        made = AutoModelForCausalLM.from_config(config(name), dtype=torch.float32)
    with torch.no_grad():
        for key, weight in made.named_parameters():
            values = _values(f"{name}/{key}", tuple(weight.shape), weight.mean().item())
            weight.copy_(torch.from_numpy(values))
    return made


def _values(key: str, shape: tuple[int, ...], centre: float) -> np.ndarray:
    """Matrices and stacks of them [..., out, in]: normal with standard deviation 1/sqrt(in), or 1/sqrt(out) where
    GPT-2 stores them transposed. Vectors: spread about the value the architecture starts them from (`centre`: 1 or
    0 for norms, 0 for biases)."""
    normal = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape)
    return (normal / np.sqrt(shape[-1]) if len(shape) > 1 else centre + 0.3 * normal).astype(np.float32)


def tokenizer():
    """One token a UTF-8 byte, its id the byte's value; `<bos>` is 256 and `<eos>` 257."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: byte for byte, character in enumerate(_alphabet())}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<bos>", eos_token="<eos>")


def _alphabet() -> list[str]:
    """The printable character that byte-level tokenizers write for each byte 0..255: the byte's own where it
    is printable, else the next free one from 256 on (Radford et al. 2019, GPT-2)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]
