"""The models that come as assets; reading a model's files, and turning a GGUF file into such files."""

import io
import os
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import NamedTuple

from lib import lock
from lib.errors import InputError
from lib.inputs import sealed


class Known(NamedTuple):
    """A model that comes as an asset of the same name."""

    gguf: str
    context: int  # tokens
    size: tuple[int, ...]  # the fields of lib.inputs.sizes.Size


KNOWN = {
    "gemma-3-270m": Known("gemma-3-270m-q4_k_m.gguf", 32768, (268_098_176, 100_270_080, 5_573_632, 2048, 640)),
    "smollm2-135m": Known("SmolLM2-135M-Instruct.Q4_1.gguf", 8192, (134_515_008, 106_168_320, 3_540_096, 1536, 576))}


@contextmanager
def quiet():
    """No progress bars on stderr: they would stand in executed notebooks."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        if shown:
            logging.enable_progress_bar()


def tokenizer(folder: Path):
    """The tokenizer of a folder. Raises InputError when it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"the tokenizer in {folder} cannot be read: {error}") from error


def read(folder: Path, dtype, gguf: str | None = None, device_map: dict | None = None):
    """(model, tokenizer) of a folder, on the CPU or where `device_map` puts its modules. A weight that the files lack
    would be random: that is an error."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": gguf} if gguf else {}
    safe = {"local_files_only": True, "trust_remote_code": False}
    source = folder / gguf if gguf else folder
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=not gguf, output_loading_info=True, device_map=device_map,
            **safe, **where)
        tokenizer = AutoTokenizer.from_pretrained(folder, **safe, **where)
    except (OSError, ValueError, RuntimeError, KeyError, struct.error, SafetensorError) as error:
        raise InputError(f"the model in {source} cannot be read: {error}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise InputError(f"the model in {source} lacks {len(missing)} weights of {type(model).__name__}, "
                         f"among them {missing[0]}, which would be random; complete it or give another model")
    return model, tokenizer


def converted(source: Callable[[], Path], target: Path) -> Path:
    """The folder `target` with safetensors and tokenizer of a GGUF file, which `source` finds when it is needed:
    made where it is not there, and anew where a file in it is damaged."""
    damage = sealed.damaged(target) if sealed.is_complete(target, target.name) else "not complete"
    if damage:
        if target.is_dir():
            print(f"{target} is not whole ({damage}), so the model is converted anew", file=sys.stderr, flush=True)
        _convert(source(), target)
    return target


def _convert(gguf: Path, target: Path) -> None:
    """De-quantize a GGUF file to float32. Written under a temporary name and moved as a whole, so that the folder is
    complete when it exists."""
    import torch

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as place:
        made = Path(place, "model")
        with quiet():
            quantized, tokenizer = read(gguf.parent, torch.float32, gguf.name)
            # transformers marks the model as quantized and will not save it: its weights move to a plain one.
            config = quantized.config.to_dict()
            del config["quantization_config"]
            model = type(quantized)(type(quantized.config).from_dict(config))
            model.load_state_dict(quantized.state_dict())
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
        sealed.seal(made, target.name)
        with lock.held(target.parent / f".lock-{target.name}", f"the model {target.name}", wait=True):
            if target.exists():  # damaged, or another process was faster
                os.replace(target, Path(place, "old"))
            os.replace(made, target)
