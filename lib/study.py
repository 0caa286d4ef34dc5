"""What a run computes: one frozen dataclass, filled from a profile in lib/profiles/ and overrides.

Nothing here imports torch, so that a notebook that only draws stays light.
"""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields

from lib.errors import InputError
from lib.inputs import corpora, models
from lib.paths import ROOT
from lib.pruning.scores import METHODS

PROFILES = ROOT / "lib" / "profiles"
DTYPES = ("float32", "mixed", "bfloat16")  # of the forward pass; run.measure says what "mixed" is


@dataclass(frozen=True)
class Variant:
    """One model in one state: what a row of every table is about. Fields are the tables' common columns."""

    model: str
    method: str  # "dense" or a name of pruning.scores.METHODS
    pattern: str  # "unstructured", "n:m", or "none" when dense
    sparsity: float
    group: str  # comparison group: row | matrix; "none" when dense
    calibration: str  # a language, a mixture ("de+en", "all"), or "none" for methods that need no text
    calibration_corpus: str
    n_samples: int  # calibration windows
    seqlen: int  # tokens a window
    budget: str
    seed: int  # of the calibration draw; -1 where nothing is drawn
    dtype: str  # of the model's forward pass

    @property
    def label(self) -> str:
        text = "" if self.calibration == "none" else f" {self.calibration} seed {self.seed}"
        return f"{self.model} {self.method}{'' if self.method == 'dense' else '/' + self.group}{text}"


@dataclass(frozen=True)
class Study:
    """Every number and name a run depends on. `Study.load` is the way to make one."""

    profile: str
    models: tuple[str, ...]
    languages: tuple[str, ...]  # evaluation languages
    calibrations: tuple[str, ...]  # calibration languages or mixtures; empty: the evaluation languages
    calibration_corpus: str
    evaluation_corpora: tuple[str, ...]
    methods: tuple[str, ...]  # "wanda" or "magnitude:matrix" with its comparison group
    sparsity: float  # share of each matrix that is removed
    pattern: str
    seeds: tuple[int, ...]  # of the calibration draw
    windows: int
    seqlen: int
    budget: str  # "tokens": equal tokens in every language; "segments": the same segments
    segments: int  # evaluation segments a corpus, the same in every language
    dtype: str
    label: str = ""  # names the folders of figures and notebooks; the profile's name when nothing is overridden

    @classmethod
    def load(cls, profile: str, **overrides) -> "Study":
        """The profile with overrides on top. Values may be strings as they come from a command line
        ("de,sw", "0.6"). Raises InputError for whatever cannot be run, before anything is loaded."""
        path = PROFILES / f"{profile}.toml"
        if not path.is_file():
            raise InputError(f"profile {profile!r} is unknown; allowed: {', '.join(profiles())}")
        known = {f.name: f.type for f in fields(cls) if f.name not in ("profile", "label")}
        for key in overrides:
            if key not in known:
                raise InputError(f"{key!r} is no setting of a study; allowed: {', '.join(known)}")
        values = tomllib.loads(path.read_text()) | overrides
        study = cls(profile=profile, **{k: _typed(k, known[k], v) for k, v in values.items()})
        plain = cls(profile=profile, **{k: _typed(k, known[k], v) for k, v in tomllib.loads(path.read_text()).items()})
        name = profile if study == plain else f"{profile}-{study.digest()[:8]}"
        object.__setattr__(study, "label", name)
        _check(study)
        return study

    def digest(self) -> str:
        """SHA-256 (hex) of all settings but the profile's name."""
        settings = {k: v for k, v in asdict(self).items() if k not in ("profile", "label")}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def calibration_sets(self) -> tuple[str, ...]:
        """The calibration languages and mixtures of the grid."""
        return self.calibrations or self.languages

    def calibration_languages(self) -> tuple[str, ...]:
        """Every language whose calibration text is read, each once."""
        named = [p for c in self.calibration_sets() for p in (self.languages if c == "all" else c.split("+"))]
        return tuple(dict.fromkeys(named))

    def variants(self) -> list[Variant]:
        """The grid, model by model: dense, then each method by seed and calibration."""
        grid = []
        for model in self.models:
            grid.append(Variant(model, "dense", "none", 0.0, "none", "none", "none", 0, 0, "none", -1, self.dtype))
            for spec in self.methods:
                method, group = split_method(spec)
                if METHODS[method].statistic is None:
                    grid.append(Variant(model, method, self.pattern, self.sparsity, group, "none", "none", 0, 0,
                                        "none", -1, self.dtype))
                    continue
                grid += [Variant(model, method, self.pattern, self.sparsity, group, calibration,
                                 self.calibration_corpus, self.windows, self.seqlen, self.budget, seed, self.dtype)
                         for seed in self.seeds for calibration in self.calibration_sets()]
        return grid


def profiles() -> list[str]:
    """Names of the profiles there are."""
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def split_method(spec: str) -> tuple[str, str]:
    """"magnitude:matrix" -> ("magnitude", "matrix"); a bare name takes the method's default group."""
    method, _, group = spec.partition(":")
    if method not in METHODS:
        raise InputError(f"method {method!r} is unknown; allowed: {', '.join(METHODS)} (dense is always included)")
    allowed = METHODS[method].groups
    if group and group not in allowed:
        raise InputError(f"method {spec!r} names the comparison group {group!r}; {method} allows {', '.join(allowed)}")
    return method, group or allowed[0]


def _typed(key: str, kind, value):
    """The value as the field's type; strings as they come from a command line are parsed."""
    element = {tuple[str, ...]: str, tuple[int, ...]: int}.get(kind)
    try:
        if element:
            parts = value.split(",") if isinstance(value, str) else value
            parts = parts if isinstance(parts, list | tuple) else [parts]
            return tuple(element(p.strip() if isinstance(p, str) else p) for p in parts)
        if kind is int and not isinstance(value, str) and int(value) != value:
            raise ValueError
        return kind(value)
    except (TypeError, ValueError):
        name = f"a list of {element.__name__}, as a,b,c" if element else f"of type {kind.__name__}"
        raise InputError(f"{key} is {value!r}, which cannot be read; it is {name}") from None


def _check(study: Study) -> None:
    """Refuse what cannot be run, naming what is allowed."""
    for key in ("models", "languages", "evaluation_corpora", "methods", "seeds"):
        value = getattr(study, key)
        if not value or len(set(value)) != len(value):
            raise InputError(f"{key} is {list(value)}; it needs at least one entry and none twice")
    if not 0 < study.sparsity < 1:
        raise InputError(f"sparsity is {study.sparsity}; allowed: above 0 and below 1 (the share of weights removed)")
    for key, least in (("windows", 1), ("seqlen", 2), ("segments", 2)):
        if getattr(study, key) < least:
            raise InputError(f"{key} is {getattr(study, key)}; allowed: {least} or more")
    for key, allowed in (("budget", ("tokens", "segments")), ("dtype", DTYPES), ("pattern", ("unstructured",))):
        if getattr(study, key) not in allowed:
            raise InputError(f"{key} is {getattr(study, key)!r}; allowed: {', '.join(allowed)}")
    for spec in study.methods:
        split_method(spec)
    for name in study.models:
        models.check(name)
        limit = models.context_length(name)
        if limit and study.seqlen > limit:
            raise InputError(f"seqlen is {study.seqlen}; {name} takes at most {limit} tokens")
    _check_text(study)


def _check_text(study: Study) -> None:
    """Every language must have text in every corpus that is read in it."""
    wanted = [(study.calibration_corpus, "calibration", study.calibration_languages())]
    wanted += [(corpus, "evaluation", study.languages) for corpus in study.evaluation_corpora]
    for corpus, split, languages in wanted:
        if split not in corpora.splits(corpus):
            raise InputError(f"corpus {corpus!r} has no {split} text; its splits: {', '.join(corpora.splits(corpus))}")
        there = corpora.languages(corpus, split)
        for language in languages:
            if language not in there:
                raise InputError(f"language {language!r} has no {split} text in corpus {corpus!r}; "
                                 f"allowed: {', '.join(there)}")
