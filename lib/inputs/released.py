"""Pruned checkpoints that others have released: what their names say, and where their files lie.

The authors' are in the hub organisation `multilingual-pruning`, whose card gives the scheme

    pruned-<original model name>-<pruning method>-<sparsity ratio>-<sparsity type>-<calibration dataset>-
    <calibration languages>-<seed>

Names seen there: `pruned-llama3-8b-instruct-wanda-0.5-unstructured-mc4-de-0`, the same with `2to4` as the type, and
`pruned-llama3-8b-instruct-wanda-0.3-unstructured-mc4-es` (no seed). Some begin with `pruned-pruned-`; both
spellings of one name are repositories of their own. How several languages are joined was not to be seen.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lib.errors import InputError
from lib.inputs import hub_models, models
from lib.paths import ROOT
from lib.pruning.methods import METHODS

ORIGINALS = {  # the scheme's model names -> hub ids of the dense models
    "llama3-8b-instruct": "meta-llama/Meta-Llama-3-8B-Instruct",
    "llama3-70b-instruct": "meta-llama/Meta-Llama-3-70B-Instruct",
    "aya-23-8b": "CohereLabs/aya-23-8B",
    "aya-23-35b": "CohereLabs/aya-23-35B",
}
SCHEME = re.compile(
    r"(pruned-)+(?P<model>.+)"
    rf"-(?P<method>{'|'.join(METHODS)})"
    r"-(?P<ratio>0?\.\d+|[1-9]\d?)"
    r"-(?P<type>unstructured|(?P<kept>\d+)(:|-|_|to|of)(?P<run>\d+))"
    r"-(?P<corpus>[^\W_][\w.]*)"
    r"-(?P<languages>[a-z]{2,3}([-_+][a-z]{2,3})*)"
    r"(-(seed)?(?P<seed>\d+))?", re.IGNORECASE)


@dataclass(frozen=True)
class Release:
    """What the name of a pruned checkpoint says. Only the zeros can tell whether it is so."""

    model: str  # as the name has it; `original` for where the dense one is
    method: str
    sparsity: float
    pattern: str  # "unstructured" or "n:m"
    corpus: str
    calibration: str  # "de" or a mixture, "de+en"
    seed: int | None  # None where the name has none

    @property
    def original(self) -> str:
        """Name under which the dense model is loaded: a hub id for the authors' models, else the name itself."""
        return ORIGINALS.get(self.model.lower(), self.model)


def parse(source: str) -> Release:
    """The name in a folder's path or a hub id (`organisation/name[@revision]`), read by the scheme.

    The model's name may hold dashes. Accepted are, in any case: the ratio as 0.5 or 50; the type as unstructured,
    2to4, 2of4, 2:4, 2-4 or 2_4; languages joined by -, _ or +; the seed as 0 or seed0, or none; pruned- once or
    more. Raises InputError for a name that does not fit.
    """
    path = source.partition("@")[0] if models.HUB.fullmatch(source) else source
    name = path.rstrip("/").rpartition("/")[2]
    match = SCHEME.fullmatch(name)
    if match is None:
        raise InputError(
            f"checkpoint name {name!r} does not fit the scheme pruned-<model>-<method>-<ratio>-<type>-<corpus>-"
            f"<languages>-<seed>, for example pruned-aya-23-8b-wanda-0.5-unstructured-mc4-de-0, with a method of "
            f"{', '.join(METHODS)}, a ratio as 0.5 and a type as unstructured or 2to4; rename the folder so")
    ratio = float(match["ratio"])
    return Release(
        model=match["model"], method=match["method"].lower(), sparsity=ratio / 100 if ratio >= 1 else ratio,
        pattern=f"{int(match['kept'])}:{int(match['run'])}" if match["run"] else "unstructured",
        corpus=match["corpus"].lower(), calibration=re.sub("[-_]", "+", match["languages"].lower()),
        seed=int(match["seed"]) if match["seed"] else None)


def folder(source: str) -> Path:
    """Folder of the safetensors of a local path (relative to the repository root, then to the working directory)
    or of a hub id, whose files are downloaded on first use.

    Raises InputError when there is neither, or no safetensors file in it.
    """
    place = next((path for path in (ROOT / source, Path(source).absolute()) if source and path.is_dir()), None)
    if place is None:
        if not models.HUB.fullmatch(source):
            raise InputError(f"checkpoint {source!r} is no folder, and no hub id written as organisation/name or "
                             "organisation/name@revision")
        place = hub_models.snapshot(source)
    if not list(place.glob("*.safetensors")):
        raise InputError(f"checkpoint {source} has no *.safetensors file. Pickled checkpoints (.bin, .pt) can run "
                         "code when they are opened and are refused; convert it with save_pretrained first")
    return place
