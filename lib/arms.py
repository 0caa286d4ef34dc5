"""The arms of a grid: a pruning method with the settings it is run at.

An arm is written as one string: a method, its comparison group if it is not the published one, then settings in
which it differs from its study, lists parted by "/":

    "wanda"    "magnitude:matrix"    "sparsegpt pattern=2:4 seeds=0 tables=pruning/perplexity"    "wanda windows=25%"

The last one takes a quarter of the study's windows, whatever their number.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields

from lib.errors import InputError
from lib.inputs.languages import weights
from lib.pruning.methods import METHODS, group_of
from lib.pruning.scores import run_of

# What an arm can be measured for; see lib.run.measure.
TABLES = ("pruning", "perplexity", "downstream", "layer_error", "subspaces", "masks", "neurons")
ASKED = ("silencing", "robustness", "mixtures")  # only where an arm names them


@dataclass(frozen=True)
class Arm:
    """A method at its settings. `tables`: what it is measured for."""

    method: str
    group: str
    pattern: str
    sparsity: float
    models: tuple[str, ...]
    calibrations: tuple[str, ...]
    seeds: tuple[int, ...]
    calibration_corpus: str
    windows: int
    seqlen: int
    budget: str
    tables: tuple[str, ...] = TABLES

    @property
    def needs_text(self) -> bool:
        return METHODS[self.method].statistic is not None


def parse(spec: str, usual: dict) -> Arm:
    """The arm that `spec` writes; settings it leaves open are those of `usual`. Raises InputError, naming what
    is allowed."""
    name, *settings = spec.split() or [""]
    method, _, group = name.partition(":")
    if method not in METHODS:
        raise InputError(f"method {method!r} is unknown; allowed: {', '.join(METHODS)} (dense is always included)")
    known = {f.name: f.type for f in fields(Arm) if f.name not in ("method", "group")}
    values = dict(usual)
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in known or not value:
            raise InputError(f"method {spec!r} has the setting {setting!r}; allowed: {', '.join(known)}, each written "
                             "as name=value, lists as a/b")
        values[key] = (_share(value, usual["windows"], spec) if key == "windows" and value.endswith("%")
                       else typed(key, known[key], value, "/"))
    run = run_of(values["pattern"])
    if run:
        values["sparsity"] = (run[1] - run[0]) / run[1]
    group = group_of(method, values["pattern"], group or None)
    arm = Arm(method=method, group=group, **{k: v for k, v in values.items() if k in known})
    for table in arm.tables:
        if table not in TABLES + ASKED:
            raise InputError(f"method {spec!r} is to be measured for {table!r}; allowed: {', '.join(TABLES + ASKED)}")
    return arm


def _share(value: str, windows: int, spec: str) -> int:
    """"62.5%" of 64 windows -> 40."""
    try:
        return int(windows * float(value.removesuffix("%")) / 100)
    except ValueError:
        raise InputError(f"method {spec!r} has windows={value}, which is no share; write it as windows=25%, or the "
                         "number of windows as windows=16") from None


def narrowed(spec: str, languages: Collection[str], models: Collection[str]) -> str | None:
    """The arm `spec` for a study of these `languages` and `models`: without those of its own calibrations and models
    that the study does not have. An arm without any of its calibrations takes the study's, unless they are mixtures;
    without any of its models or mixtures it is none (None). So a profile's arms follow when its languages or models
    are overridden."""
    words = []
    for word in spec.split():
        key, _, value = word.partition("=")
        if key in ("calibrations", "models"):
            kept = [v for v in value.split("/")
                    if (v in models if key == "models" else set(weights(v)) <= set(languages))]
            if not kept and (key == "models" or "+" in value):
                return None
            word = f"{key}={'/'.join(kept)}" if kept else ""
        words.append(word)
    return " ".join(filter(None, words))


def typed(key: str, kind, value, separator: str = ","):
    """The value as the field's type; strings as they come from a command line are parsed."""
    element = {tuple[str, ...]: str, tuple[int, ...]: int}.get(kind)
    try:
        if element:
            parts = value.split(separator) if isinstance(value, str) else value
            parts = parts if isinstance(parts, list | tuple) else [parts]
            parts = [p.strip() if isinstance(p, str) else p for p in parts]
            return tuple(element(p) for p in parts if p != "")
        if kind is bool and str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        if kind is int and not isinstance(value, str) and int(value) != value:
            raise ValueError
        if kind is bool:
            raise ValueError
        return kind(value)
    except (TypeError, ValueError):
        name = f"a list of {element.__name__}, as a{separator}b" if element else f"of type {kind.__name__}"
        raise InputError(f"{key} is {value!r}, which cannot be read; it is {name}") from None
