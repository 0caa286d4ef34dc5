"""What a run computes: one frozen dataclass, filled from a profile in lib/profiles/ and overrides.

Nothing here imports torch, so that a notebook that only draws stays light.
"""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, fields, replace

from lib import checks
from lib.arms import ASKED, Arm, narrowed, parse, typed
from lib.errors import InputError
from lib.inputs import corpora, released, tasks
from lib.paths import ROOT
from lib.pruning.methods import group_of

PROFILES = ROOT / "lib" / "profiles"


@dataclass(frozen=True)
class Variant:
    """One model in one state: what a row of every table is about. Fields are the tables' common columns."""

    model: str
    method: str  # "dense" or a name of lib.pruning.methods.METHODS
    pattern: str  # "unstructured", "n:m", or "none" when dense
    sparsity: float
    group: str  # comparison group: row | matrix | block | run (of n:m); "none" when dense
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
        if self.method == "dense":
            return f"{self.model} dense{text}"
        how = f"{self.sparsity:.0%}" if self.pattern == "unstructured" else self.pattern
        return f"{self.model} {self.method}/{self.group} {how}{text}"


@dataclass(frozen=True)
class Study:
    """Every number and name a run depends on. `Study.load` is the way to make one."""

    profile: str
    models: tuple[str, ...]
    languages: tuple[str, ...]  # evaluation languages
    calibrations: tuple[str, ...]  # calibration languages or mixtures; empty: the evaluation languages
    calibration_corpus: str
    evaluation_corpora: tuple[str, ...]
    methods: tuple[str, ...]  # the arms of the grid, as lib.arms reads them: "wanda", "ria:row seeds=0"
    checkpoints: tuple[str, ...]  # models that others pruned: folders or hub ids, named as lib.inputs.released reads
    sparsity: float  # share of each comparison group that is removed; n:m patterns bring their own
    pattern: str  # "unstructured" or "n:m"
    seeds: tuple[int, ...]  # of the calibration draw
    windows: int
    seqlen: int
    budget: str  # what is equal in all languages; see lib.inputs.calibration.windows
    segments: int  # evaluation segments a corpus, the same in every language
    parallel_corpora: tuple[str, ...]  # whose sentences, the same in all languages, are embedded
    tasks: tuple[str, ...]  # names of lib.inputs.tasks, with the items asked in each language: "knowledge=120"
    only_above_chance: bool  # ask pruned models only where the dense one answers better than by guessing
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
        study = cls(profile=profile, **{k: typed(k, known[k], v) for k, v in values.items()})
        study = replace(study, **{key: fit(study) for key, fit in _FITS.items() if key not in overrides})
        plain = cls(profile=profile, **{k: typed(k, known[k], v) for k, v in tomllib.loads(path.read_text()).items()})
        name = profile if study == plain else f"{profile}-{study.digest()[:8]}"
        object.__setattr__(study, "label", name)
        checks.check(study)
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
        return checks.languages_of(self.calibration_sets(), self.languages)

    def robustness_languages(self) -> tuple[str, ...]:
        """The languages in which models of the robustness grid are calibrated and read."""
        used = tuple(c for arm in self.arms() if "robustness" in arm.tables for c in arm.calibrations)
        return tuple(x for x in checks.languages_of(used, self.languages) if x in self.languages)

    def main(self) -> dict:
        """The study's own setting, which verdicts on the claims are about (see lib.analysis.claims)."""
        return {"sparsity": self.sparsity, "pattern": self.pattern, "calibration_corpus": self.calibration_corpus,
                "n_samples": self.windows, "seqlen": self.seqlen, "budget": self.budget}

    def arms(self) -> list[Arm]:
        """The methods with their settings."""
        usual = asdict(self) | {"calibrations": self.calibration_sets()}
        return [parse(spec, usual) for spec in self.methods]

    def task_items(self) -> dict[str, int]:
        """Items to ask in each language, by task."""
        return {name: int(count) for name, _, count in (task.partition("=") for task in self.tasks)}

    def task_text(self, task: str) -> tuple[str, ...]:
        """The evaluation corpora that a task is made from; none where it brings its own text."""
        needed = set(tasks.TASKS[task].splits) if task in tasks.TASKS else set()
        return tuple(c for c in self.evaluation_corpora if needed & set(corpora.splits(c)))

    def task_languages(self, task: str) -> tuple[str, ...]:
        """The study's languages that a task has; none where no evaluation corpus has the text it is made from."""
        text = self.task_text(task)
        if task in tasks.TASKS and tasks.TASKS[task].splits and not text:
            return ()
        there = tasks.coverage(task, text)
        return tuple(language for language in self.languages if language in there)

    def dense(self, model: str) -> Variant:
        """The model as it is."""
        return Variant(model, "dense", "none", 0.0, "none", "none", "none", 0, 0, "none", -1, self.dtype)

    def variants(self, table: str) -> list[Variant]:
        """The grid of what is measured for `table`, model by model: dense, methods without text, then draw by
        draw of the calibration text the methods that use it (they share work)."""
        grid = []
        for model in self.models:
            grid.append(self.dense(model))
            arms = [arm for arm in self.arms() if table in arm.tables and model in arm.models]
            grid += [Variant(model, arm.method, arm.pattern, arm.sparsity, arm.group, "none", "none", 0, 0, "none",
                             -1, self.dtype) for arm in arms if not arm.needs_text]
            draws: dict[tuple, list[Variant]] = {}
            for arm in arms:
                for seed in arm.seeds if arm.needs_text else ():
                    for calibration in arm.calibrations:
                        draw = (calibration, arm.calibration_corpus, arm.windows, arm.seqlen, arm.budget, seed)
                        draws.setdefault(draw, []).append(Variant(
                            model, arm.method, arm.pattern, arm.sparsity, arm.group, *draw, self.dtype))
            grid += [variant for variants in draws.values() for variant in variants]
            if table not in ASKED:
                grid += [variant for variant in self.released() if variant.model == model]
        return list(dict.fromkeys(grid))

    def pruned(self, table: str) -> list[Variant]:
        """`variants` without the dense models."""
        return [variant for variant in self.variants(table) if variant.method != "dense"]

    def released(self) -> dict[Variant, str]:
        """The checkpoints by what their names say they are; windows and their length, which no name tells, are 0."""
        found: dict[Variant, str] = {}
        for source in self.checkpoints:
            it = released.parse(source)
            model = next((m for m in self.models if m == it.original or m.rpartition("/")[2] == it.model), None)
            if model is None:
                raise InputError(f"checkpoint {source} was made of {it.original}, which its zeros are compared with; "
                                 f"add that to models, which are: {', '.join(self.models)}")
            variant = Variant(model, it.method, it.pattern, it.sparsity, group_of(it.method, it.pattern, None),
                              it.calibration, it.corpus, 0, 0, "none", -1 if it.seed is None else it.seed, self.dtype)
            if variant in found:
                raise InputError(f"checkpoints {found[variant]} and {source} are by their names the same; give one")
            found[variant] = source
        return found


def profiles() -> list[str]:
    """Names of the profiles there are."""
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def _arms(study: Study) -> tuple[str, ...]:
    known = {*study.languages, *study.calibration_languages()}
    return tuple(filter(None, (narrowed(spec, known, study.models) for spec in study.methods)))


def _tasks(study: Study) -> tuple[str, ...]:
    return tuple(task for task in study.tasks if study.task_languages(task.partition("=")[0]))


def _parallel(study: Study) -> tuple[str, ...]:
    return tuple(c for c in study.parallel_corpora if set(study.languages) <= set(corpora.languages(c, "parallel")))


# What a profile names beside its languages, models and corpora: without what these, when they are overridden, lack.
_FITS = {"methods": _arms, "tasks": _tasks, "parallel_corpora": _parallel}
