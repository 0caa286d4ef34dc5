"""Models: the tiny recipes, folders, GGUF files, the hub, and everything that is refused."""

import hashlib
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from lib.errors import InputError
from lib.inputs import corpora, models, tiny
from lib.paths import CACHE, ROOT
from lib.pruning.blocks import find_blocks

# SHA-256 of all weights. A change means other results under the same name: raise tiny.RECIPE with it.
WEIGHTS = {
    "tiny-llama": "e95a84c7029f3634",
    "tiny-gemma3": "fd002e9da3672aaa",
    "tiny-qwen2": "5b3612d018c01577",
    "tiny-cohere": "ff9213086f4a12e3",
    "tiny-bloom": "d357bd560071c423",
    "tiny-gpt-neox": "4fc4afd8393797e9",
    "tiny-qwen3": "1f24b33edab82659",
    "tiny-mistral": "308e19c54342e390",
    "tiny-gpt2": "713ce4e753798791",
    "tiny-opt": "c8383f699fd759d7",
    "tiny-mixtral": "0205edc63047cb81",
}
IDS = torch.randint(0, 256, (2, 40), generator=torch.Generator().manual_seed(0))


def weights_digest(model) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        digest.update(name.encode() + weight.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


@pytest.fixture
def folder(tmp_path) -> Path:
    """tiny-llama as a folder of safetensors."""
    model, tokenizer = models.load("tiny-llama")
    model.save_pretrained(tmp_path / "llama")
    tokenizer.save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def edit(folder: Path, **settings) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


# --- tiny recipes ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", tiny.RECIPES)
def test_recipes_give_the_same_bytes_everywhere(name):
    state = torch.get_rng_state()
    model, _ = models.load(name)
    assert torch.equal(torch.get_rng_state(), state)
    assert weights_digest(model) == WEIGHTS[name]
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    assert not model.config.use_cache
    assert model(IDS).past_key_values is None


@pytest.mark.parametrize("name", tiny.RECIPES)
def test_recipes_are_not_degenerate(name):
    logits = models.load(name)[0](IDS).logits
    assert 0.3 < float(logits.std()) < 3
    assert float(logits.std(dim=1).mean()) > 0.2  # unlike tokens, unlike predictions
    half = models.load(name, "bfloat16")[0]
    assert half.dtype == torch.bfloat16
    off = (half(IDS).logits.float() - logits).abs()
    # Of a mixture's tokens a few are sent to other experts when the router's scores are rounded.
    assert float(off.flatten().quantile(0.9) if name == "tiny-mixtral" else off.max()) < 0.3


def test_gemma_alternates_within_any_test_sequence():
    config = models.load("tiny-gemma3")[0].config
    assert config.layer_types == ["sliding_attention", "full_attention"] * 2
    assert config.sliding_window < IDS.shape[1]


@pytest.mark.parametrize("text", [
    "plain", "Grüße, мир! 你好 مرحبا\n\n  two\tblanks  ", "\x00\x7f\u00a0\u00ad", "🙂", ""])
def test_a_token_is_a_byte(text):
    tokenizer = tiny.tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, len(tokenizer)) == (256, 257, 258)


def test_prefix_token_is_bos_else_eos_else_none():
    tokenizer = tiny.tokenizer()
    assert models.prefix_token(tokenizer) == 256
    tokenizer.bos_token = None
    assert models.prefix_token(tokenizer) == 257
    tokenizer.eos_token = None
    assert models.prefix_token(tokenizer) is None


def test_known_names_are_checked_without_torch():
    code = ("import sys; from lib.inputs import models\n"
            "for name in [*models.KNOWN, *models.tiny.RECIPES]:\n"
            "    models.check(name); print(name, models.fingerprint(name), models.context_length(name))\n"
            "assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len({row[1] for row in rows}) == len(rows) == 13
    assert {row[0]: row[2] for row in rows} == {
        "gemma-3-270m": "32768", "smollm2-135m": "8192", "tiny-llama": "512", "tiny-gemma3": "512",
        "tiny-qwen2": "512", "tiny-cohere": "512", "tiny-bloom": "None", "tiny-gpt-neox": "512", "tiny-qwen3": "512",
        "tiny-mistral": "512", "tiny-gpt2": "512", "tiny-opt": "512", "tiny-mixtral": "512"}


# --- folders -----------------------------------------------------------------------------------------------

def test_a_folder_gives_the_model_that_was_saved(folder):
    model, tokenizer = models.load(str(folder))
    dense = models.load("tiny-llama")[0]
    assert torch.equal(model(IDS).logits, dense(IDS).logits)
    assert tokenizer("ä", add_special_tokens=False)["input_ids"] == [0xC3, 0xA4]
    assert models.context_length(str(folder)) == 512


def test_a_relative_folder_is_found_from_anywhere(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    models.check("llama")
    assert models.fingerprint("llama") == models.fingerprint(str(folder))


def test_a_fingerprint_follows_the_content(folder):
    first = models.fingerprint(str(folder))
    assert first == models.fingerprint(str(folder))
    weights = folder / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert models.fingerprint(str(folder)) != first


@pytest.mark.parametrize(("settings", "message"), [
    ({"auto_map": {"AutoModelForCausalLM": "model.Own"}}, "trust_remote_code is off"),
    ({"is_encoder_decoder": True}, "encoder-decoder"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "no causal language model"),
    ({"model_type": "nothing-known"}, "no causal language model"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantized"),
])
def test_folders_of_other_kinds_are_refused_before_loading(folder, settings, message):
    edit(folder, **settings)
    (folder / "model.safetensors").unlink()
    for act in (models.check, models.load):
        with pytest.raises(InputError, match=message):
            act(str(folder))


@pytest.mark.parametrize(("kind", "settings", "message"), [
    ("bert", {"intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}, "no causal"),
    ("t5", {"d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 1}, "encoder-decoder"),
])
def test_encoders_are_refused(tmp_path, kind, settings, message):
    config = AutoConfig.for_model(kind, vocab_size=50, hidden_size=16, **settings)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=message):
        models.check(str(tmp_path))


def test_pickles_are_refused(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="Pickled checkpoints"):
        models.load(str(folder))


def test_missing_weights_are_not_made_up(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 weights .* model\.layers\.1\.mlp\.up_proj\.weight"):
        models.load(str(folder))


def test_a_torn_file_is_an_input_error(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(InputError, match="cannot be read"):
        models.load(str(folder))


def test_a_decoder_without_linear_layers_is_refused(folder, monkeypatch):
    from transformers.models.llama import modeling_llama

    class Empty(torch.nn.Module):
        def __init__(self, *_):
            super().__init__()

    monkeypatch.setattr(modeling_llama, "LlamaDecoderLayer", Empty)
    with pytest.raises(InputError, match="no linear layers"):
        models.load(str(folder))


@pytest.mark.parametrize("name", ["gemma", "gemma-3-270M", "no such thing", "../..//x y"])
def test_unknown_names_list_the_known(name):
    with pytest.raises(InputError, match="smollm2-135m.*tiny-llama.*folder"):
        models.check(name)


def test_a_folder_without_configuration_is_refused(tmp_path):
    with pytest.raises(InputError, match="no config.json"):
        models.check(str(tmp_path))


@pytest.mark.parametrize("dtype", ["int8", "float64", "fp32"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(InputError, match="float32, bfloat16, float16"):
        models.load("tiny-llama", dtype)


# --- the hub, as a server on this machine ------------------------------------------------------------------

ANSWERS = {"gated": (403, "GatedRepo", "hf auth login"), "absent": (401, "RepoNotFound", "no hub model"),
           "empty": (404, "EntryNotFound", "no config.json"), "old": (404, "RevisionNotFound", "revision")}


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self):
        status, code, _ = next(answer for name, answer in ANSWERS.items() if f"/{name}/" in self.path)
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *_):
        pass


def refusals(names: list[str], **environment: str) -> list[str]:
    """What `models.check` says to each name, in a process with these variables."""
    code = ("import sys; from lib.inputs import models; from lib.errors import InputError\n"
            "for name in sys.argv[1:]:\n"
            "    try: models.check(name); print('accepted')\n"
            "    except InputError as error: print(str(error).replace(chr(10), ' '))")
    done = subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT, check=True, capture_output=True,
                          text=True, env=os.environ | environment)
    return done.stdout.splitlines()


def test_what_the_hub_refuses_is_said_in_a_sentence(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        said = refusals([f"someone/{name}" for name in ANSWERS], HF_HUB_OFFLINE="0", HF_HOME=str(tmp_path),
                        HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    for (name, (_, _, message)), line in zip(ANSWERS.items(), said, strict=True):
        assert f"model someone/{name} cannot be had" in line and message in line


def test_without_network_the_command_that_helps_is_named(tmp_path):
    (said,) = refusals(["someone/model@main"], HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert "`hf download someone/model`" in said and "gemma-3-270m" in said


def test_a_hub_model_is_loaded_and_fingerprinted_by_commit(folder, tmp_path):
    """From the hub's cache, as `hf download` leaves it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--someone--llama"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots").mkdir()
    folder.rename(repository / "snapshots" / commit)
    code = ("from lib.inputs import models; model, _ = models.load('someone/llama')\n"
            "print(models.fingerprint('someone/llama'), models.context_length('someone/llama'), "
            "model.num_parameters())")
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True,
                          env=os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}).stdout
    assert said.split() == [f"someone/llama@{commit}", "512", "181056"]


def test_a_hub_shard_with_a_flipped_bit_is_named_and_not_used(folder, tmp_path):
    """The hub's cache keeps a shard under its SHA-256."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--someone--llama"
    for part in ("refs", "snapshots", "blobs"):
        (repository / part).mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    folder.rename(repository / "snapshots" / commit)
    shard = repository / "snapshots" / commit / "model.safetensors"
    blob = repository / "blobs" / hashlib.sha256(shard.read_bytes()).hexdigest()
    shard.rename(blob)
    shard.symlink_to(os.path.relpath(blob, shard.parent))

    def load() -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-c", "from lib.inputs import models; models.load('someone/llama')"],
                              cwd=ROOT, capture_output=True, text=True,
                              env=os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"})

    assert load().returncode == 0
    data = bytearray(blob.read_bytes())
    data[-3] ^= 1
    blob.write_bytes(data)
    said = load().stderr
    assert f"{shard} is damaged" in said and "`hf download someone/llama` once" in said
    assert not shard.exists() and not blob.exists(), "so that it is fetched, and not taken for whole"


# --- GGUF --------------------------------------------------------------------------------------------------

@pytest.fixture
def gguf_file(tmp_path) -> Path:
    """A two-block Llama whose tokens are bytes and "ab", its matrices in 8 bits."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(259)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*tiny._alphabet(), "<bos>", "<eos>", "ab"])
    writer.add_token_types([1] * 256 + [3, 3, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    random = np.random.default_rng(0)
    shapes = {"token_embd": (259, 32), "output": (259, 32), "output_norm": (32,)}
    for k in range(2):
        shapes |= {f"blk.{k}.{n}": (32, 32) for n in ("attn_q", "attn_k", "attn_v", "attn_output")}
        shapes |= {f"blk.{k}.ffn_gate": (64, 32), f"blk.{k}.ffn_up": (64, 32), f"blk.{k}.ffn_down": (32, 64)}
        shapes |= {f"blk.{k}.attn_norm": (32,), f"blk.{k}.ffn_norm": (32,)}
    for name, shape in shapes.items():
        values = random.standard_normal(shape).astype(np.float32)
        if len(shape) > 1:
            packed = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored(path: Path, block: int) -> dict[str, np.ndarray]:
    """The tensors of one block of a GGUF file, read without transformers."""
    place = f"blk.{block}."
    return {t.name.removeprefix(place): gguf.dequantize(t.data, t.tensor_type)
            for t in gguf.GGUFReader(path).tensors if t.name.startswith(place)}


def test_a_gguf_file_is_converted_once_and_exactly(gguf_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, "CACHE", tmp_path / "cache")
    models.check(str(gguf_file))
    model, tokenizer = models.load(str(gguf_file))
    for k, block in enumerate(find_blocks(model)[1]):
        values = stored(gguf_file, k)
        assert np.array_equal(block.mlp.down_proj.weight.numpy(), values["ffn_down.weight"])
        assert np.array_equal(block.self_attn.v_proj.weight.numpy(), values["attn_v.weight"])
        assert np.array_equal(block.input_layernorm.weight.numpy(), values["attn_norm.weight"])
    assert tokenizer("aab", add_special_tokens=False)["input_ids"] == [97, 258]
    assert tokenizer.bos_token_id == 256 and not hasattr(model.config, "quantization_config")
    (converted,) = (tmp_path / "cache" / "models").glob("[!.]*")
    made = (converted / "model.safetensors").stat().st_mtime_ns
    assert torch.equal(models.load(str(gguf_file))[0](IDS).logits, model(IDS).logits)
    assert (converted / "model.safetensors").stat().st_mtime_ns == made
    assert capsys.readouterr().err == ""
    assert models.fingerprint(str(gguf_file)).startswith("small.gguf:")


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_converted_model_that_is_damaged_is_named_and_made_anew(gguf_file, tmp_path, monkeypatch, capsys, damage):
    monkeypatch.setattr(models, "CACHE", tmp_path / "cache")
    expected = models.load(str(gguf_file))[0](IDS).logits
    shard = next((tmp_path / "cache" / "models").glob("[!.]*")) / "model.safetensors"
    whole = shard.read_bytes()
    if damage == "gone":
        shard.unlink()
    else:
        middle = len(whole) // 2
        shard.write_bytes(whole[:middle] + (bytes([whole[middle] ^ 1]) + whole[middle + 1:] if damage == "flipped"
                                            else b""))
    assert torch.equal(models.load(str(gguf_file))[0](IDS).logits, expected)
    said = capsys.readouterr().err
    assert "converted anew" in said and ("model.safetensors" in said) == (damage == "flipped")
    assert shard.read_bytes() == whole


@pytest.mark.parametrize("share", [0.01, 0.1, 0.9])
def test_a_torn_gguf_file_leaves_nothing_behind(gguf_file, tmp_path, monkeypatch, share):
    monkeypatch.setattr(models, "CACHE", tmp_path / "cache")
    whole = gguf_file.read_bytes()
    gguf_file.write_bytes(whole[:int(len(whole) * share)])
    with pytest.raises(InputError, match=r"small\.gguf cannot be read"):
        models.load(str(gguf_file))
    assert list((tmp_path / "cache" / "models").iterdir()) == []


# --- the real models ---------------------------------------------------------------------------------------

LANGUAGES = ("ar", "de", "en", "es", "ru", "sw", "zh")


def real(name: str):
    if not (CACHE / "assets" / name / models.KNOWN[name].gguf).is_file():
        pytest.skip(f"asset {name} is not in data/cache; fetch it with: python -m lib.inputs.assets {name}")
    return models.load(name)


def perplexity(model, tokenizer, language: str) -> float:
    """On the first 300 tokens of the Scratch website's text."""
    if not (CACHE / "assets" / "scratch").is_dir():
        pytest.skip("asset scratch is not in data/cache; fetch it with: python -m lib.inputs.assets scratch")
    text = "\n".join(corpora.load("scratch", language, "evaluation")["text"])
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"][:300]
    ids = torch.tensor([[models.prefix_token(tokenizer), *tokens]])
    return float(model(ids, labels=ids).loss.exp())


@pytest.mark.real
def test_gemma_is_loaded_as_it_is():
    model, tokenizer = real("gemma-3-270m")
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    assert model.config.layer_types == kinds * 3 and model.config.sliding_window == 512
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert (models.prefix_token(tokenizer), tokenizer.bos_token, model.dtype) == (2, "<bos>", torch.float32)
    values = stored(CACHE / "assets" / "gemma-3-270m" / models.KNOWN["gemma-3-270m"].gguf, 7)
    block = find_blocks(model)[1][7]
    assert np.array_equal(block.mlp.down_proj.weight.numpy(), values["ffn_down.weight"])
    assert np.array_equal(block.self_attn.q_proj.weight.numpy(), values["attn_q.weight"])
    # GGUF stores Gemma's norm weights with the 1 added that transformers adds in the forward pass.
    assert np.allclose(block.input_layernorm.weight.numpy() + 1, values["attn_norm.weight"], atol=1e-6)
    found = {language: perplexity(model, tokenizer, language) for language in LANGUAGES}
    assert max(found.values()) < 120, found
    tokens = tokenizer("  two  blanks\n你好", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(tokens) == "  two  blanks\n你好"


@pytest.mark.real
def test_smollm2_is_loaded_as_it_is():
    model, tokenizer = real("smollm2-135m")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert models.prefix_token(tokenizer) == 1 and model.config.num_hidden_layers == 30
    values = stored(CACHE / "assets" / "smollm2-135m" / models.KNOWN["smollm2-135m"].gguf, 11)
    block = find_blocks(model)[1][11]
    assert np.array_equal(block.mlp.down_proj.weight.numpy(), values["ffn_down.weight"])
    assert np.array_equal(block.self_attn.v_proj.weight.numpy(), values["attn_v.weight"])
    assert perplexity(model, tokenizer, "en") < 60 < perplexity(model, tokenizer, "sw")
