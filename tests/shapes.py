"""Random models of more architectures than the recipes have, for the tests that must hold in all of them."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lib.inputs import models, tiny

SMALL = {"vocab_size": 258, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3,
         "intermediate_size": 64, "max_position_embeddings": 64, "pad_token_id": None}
# Learned positions and Conv1D (GPT-2), a nested decoder (OPT), norms on queries, packed gate and up (Phi-3), experts
# in stacks (Mixtral, OLMoE), and beside a shared one (Qwen2).
OTHERS = {
    "gpt2": {"vocab_size": 258, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "pad_token_id": None,
             "bos_token_id": None, "eos_token_id": None},
    "opt": SMALL | {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "qwen3": SMALL | {"num_key_value_heads": 2, "head_dim": 8},
    "mistral": SMALL | {"num_key_value_heads": 2, "sliding_window": 8},
    "gemma2": SMALL | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8},
    "olmo2": SMALL | {"num_key_value_heads": 2},
    "phi": SMALL,
    "phi3": SMALL | {"num_key_value_heads": 2},
    "falcon": {"vocab_size": 258, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
               "pad_token_id": None},
    "mixtral": SMALL | {"num_key_value_heads": 2, "num_local_experts": 4},
    "olmoe": SMALL | {"num_key_value_heads": 2, "num_experts": 3, "num_experts_per_tok": 2},
    "qwen2_moe": SMALL | {"num_key_value_heads": 2, "num_experts": 4, "moe_intermediate_size": 16,
                          "shared_expert_intermediate_size": 48},
}


def make(name: str, dtype: str = "float32"):
    """A recipe's model or one of OTHERS, the same at every call."""
    if name in tiny.RECIPES:
        return models.load(name, dtype)[0]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **OTHERS[name]))
        for parameter in model.parameters():  # biases and norms too, which start as constants
            parameter.data.mul_(5).add_(0.1 * torch.randn(parameter.shape))
    return model.to(getattr(torch, dtype)).requires_grad_(False).eval()


def stored(recipe: str, place, **options) -> str:
    """A recipe's model and tokenizer as files of a folder, whose path it gives. `options` go to save_pretrained."""
    model, tokenizer = models.load(recipe)
    model.save_pretrained(place, **options)
    tokenizer.save_pretrained(place)
    return str(place)
