"""Models on the hub: what is fetched of them, and what a person can do when that fails."""

import re
import sys
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from lib.errors import InputError
from lib.inputs import tiny
from lib.inputs.checkpoints import KNOWN
from lib.inputs.sealed import file_hash

SHA256 = re.compile("[0-9a-f]{64}")
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # no pickles


def repository(name: str) -> tuple[str, str | None]:
    """("organisation/model", revision or None) of a hub id."""
    place, _, revision = name.partition("@")
    return place, revision or None


@contextmanager
def _hub_errors(name: str):
    """Turn what the hub's client raises into what a person can do about it."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        reason = "it is gated: accept its terms on its page, then run `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "there is no local folder and no hub model of that name; a private one needs `hf auth login`"
    except errors.RevisionNotFoundError:
        reason = "that revision does not exist; leave @revision out for the newest"
    except errors.LocalEntryNotFoundError:
        reason = ("it is no local folder, and the hub cannot be reached. Run "
                  f"`hf download {repository(name)[0]}` once with a network")
    except errors.EntryNotFoundError:
        reason = "that repository holds no config.json, so it is no model of transformers"
    except errors.HfHubHTTPError as error:
        reason = f"the hub answered: {error}"
    else:
        return
    raise InputError(f"model {name} cannot be had: {reason}. Known without the hub: "
                     f"{', '.join([*KNOWN, *tiny.RECIPES])}")


@lru_cache(maxsize=64)
def config_file(name: str) -> Path:
    """config.json in the hub's cache, in a folder named by the commit. Resolved once a process, so that what
    is loaded is what was fingerprinted."""
    from huggingface_hub import hf_hub_download

    place, revision = repository(name)
    with _hub_errors(name):
        return Path(hf_hub_download(place, "config.json", revision=revision))


def is_there(name: str) -> bool:
    """Whether weights of the model lie in the hub's cache."""
    return bool(list(config_file(name).parent.glob("*.safetensors")))


def snapshot(name: str) -> Path:
    """All files but pickles, at the commit of the configuration. A shard that is not what the hub's digest says is
    fetched anew; raises InputError where that cannot be."""
    folder = _fetched(name)
    damaged = _damaged(folder)
    for shard in damaged:
        print(f"{shard} is damaged: its bytes do not have the digest that the hub states; it is fetched anew",
              file=sys.stderr, flush=True)
        shard.resolve().unlink()
        shard.unlink()
    if damaged:
        folder = _fetched(name)
    gone = [shard.name for shard in damaged if not shard.is_file()]
    if gone:
        raise InputError(f"model {name} cannot be had: {', '.join(gone)} was damaged, and the hub cannot be reached. "
                         f"Run `hf download {repository(name)[0]}` once with a network")
    return folder


def _fetched(name: str) -> Path:
    from huggingface_hub import snapshot_download

    with _hub_errors(name):
        return Path(snapshot_download(repository(name)[0], revision=config_file(name).parent.name,
                                      allow_patterns=HUB_FILES))


def _damaged(folder: Path) -> list[Path]:
    """Shards whose file in the hub's cache, which is named by its SHA-256, has another one."""
    shards = [(path, path.resolve()) for path in sorted(folder.glob("*.safetensors"))]
    return [path for path, blob in shards if SHA256.fullmatch(blob.name) and file_hash(blob) != blob.name]
