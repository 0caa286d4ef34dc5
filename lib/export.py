"""A pruned model as an ordinary checkpoint: safetensors with exact zeros, tokenizer, configuration, model card.

    python -m lib.export OUT --set models=gemma-3-270m --set methods=sparsegpt --set calibrations=de --set seeds=0

Settings are those of `python -m lib.reproduce`; they must leave one pruned variant. The folder OUT is what
`AutoModelForCausalLM.from_pretrained(OUT)` loads. Exit code 0: done. 1: something failed while running. 2: what
was asked for cannot be done.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from lib.arms import TABLES
from lib.errors import InputError, exit_code
from lib.reproduce import parse_settings
from lib.study import Study, Variant

LISTED = 12  # variants named in a message


def main(words: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return exit_code(lambda: run(_parser().parse_args(words)), "nothing was written")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lib.export", description=__doc__.split("\n")[0])
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to make; it must not hold anything yet")
    parser.add_argument("--profile", default="default", help="the settings to start from (default: %(default)s)")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings",
                        help="override a setting of the profile; lists as a,b,c")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Check everything, prune the model (or take its masks from the profile's own run), write the folder."""
    study = Study.load(arguments.profile, **parse_settings(arguments.settings))
    variant = only_variant(study)
    check_folder(arguments.out)
    from lib import card
    from lib.run import states

    model, tokenizer = states.loaded(variant.model, variant.dtype)
    check_space(model, arguments.out)
    print(f"{variant.label} ...", flush=True)
    pruned, digest = states.pruned(study, variant)
    text = card.card(study, variant, model, pruned, digest, arguments.out.absolute().name)
    save(model, tokenizer, pruned, text, arguments.out)
    print(arguments.out)
    return 0


def only_variant(study: Study) -> Variant:
    """The one pruned variant of the study. Raises InputError, with a list, when there are more."""
    grid = dict.fromkeys(variant for table in TABLES for variant in study.variants(table))
    pruned = [variant for variant in grid if variant.method != "dense"]
    if len(pruned) == 1:
        return pruned[0]
    left = "".join(f"\n  {variant.label}" for variant in pruned[:LISTED])
    more = f"\n  ... and {len(pruned) - LISTED} more" if len(pruned) > LISTED else ""
    raise InputError(f"one pruned model is exported at a time, and these settings leave {len(pruned)}; narrow them "
                     f"with --set models=, methods=, calibrations= and seeds=. They are:{left}{more}")


def check_folder(out: Path) -> None:
    """Raise InputError unless `out` is empty, or can be made in a folder that is there."""
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise InputError(f"{out} is there already and no empty folder; nothing is overwritten, so give another name")
    parent = out.absolute().parent
    if not parent.is_dir():
        raise InputError(f"the folder {parent} does not exist; make it first, or give another place")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"the folder {parent} cannot be written to; make it writable, or give another place")


def check_space(model, out: Path) -> None:
    """Raise InputError when the model's parameters do not fit on the disk of `out`."""
    size = sum(parameter.nbytes for parameter in model.parameters())
    free = shutil.disk_usage(out.absolute().parent).free
    if free < size:
        raise InputError(f"{out} needs {size:,} bytes and the disk has {free:,} left; free some, or give another place")


def save(model, tokenizer, pruned, card: str, out: Path) -> None:
    """Write the pruned model, the tokenizer and the card into the folder `out`, whole or not at all.

    Tensors have the model's dtype: what `lib.pruning.driver.applied` computes with, bit for bit. The dense model
    stays as it was. Raises InputError when `out` holds something or the disk is full; then nothing is left behind.
    """
    from safetensors import SafetensorError

    from lib.inputs.checkpoints import quiet
    from lib.pruning.driver import applied

    check_folder(out)
    check_space(model, out)
    temporary = Path(tempfile.mkdtemp(dir=out.absolute().parent, prefix=".part-"))
    config = model.config.get_text_config()
    caching, config.use_cache = config.use_cache, True  # off only where this compendium measures
    try:
        with applied(model, pruned), quiet():
            model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        temporary.chmod(0o755)
        for file in temporary.iterdir():
            file.chmod(0o644)
        os.replace(temporary, out)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{out} could not be written ({error}); see that the disk has room for it and that nothing "
                         "else is written there. Nothing is left of it") from error
    finally:
        config.use_cache = caching
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
