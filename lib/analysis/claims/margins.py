"""The numbers that decide, each with its reason; written down before the tables they judge."""

# Every rule reads one end of an interval at a time, so a 90 % interval is a one-sided test at 5 % for each
# end (the convention of equivalence testing). With seven languages it lets "generally" have one exception: 6
# of 7 has the lower end 0.55, 5 of 7 has 0.45.
LEVEL = 0.90
ALPHA = (1 - LEVEL) / 2  # 5 %, one-sided

# The setting that verdicts are about; other rows (sparsities, window counts, corpora, other groups) are the
# business of the robustness notebook. A run of another size hands its own values to `verdicts`.
MAIN = {"sparsity": 0.5, "pattern": "unstructured", "calibration_corpus": "chromium", "n_samples": 64,
        "seqlen": 256, "budget": "tokens"}
METHODS = ("sparsegpt", "wanda")  # the paper's two; "whatever the method" is told only when both are there
MODELS = 2  # "whatever the model" is told from no fewer
LANGUAGES = 3  # with fewer, being best is close to a coin toss and no interval over languages decides

# "Generally": in more than half the languages. Chance is 1/7, so this asks for far more than a preference.
GENERALLY = 0.5

# "Reliably": in more than two of three languages. A person who relies on a rule expects it to be right
# clearly more often than not; three of four could not be shown with seven languages even at 7 of 7 (lower end
# 0.72).
RELIABLY = 2 / 3

# A lead in SNR below this is a tie: 0.05 dB is 1.2 % of the error's power, below what a change of the
# held-out text moves it by.
SNR_MARGIN = 0.05

# Accuracy: what would be worth having. Five points is what published pruning tables call an improvement on
# tasks of this size; data that could not show a lead of five points must not be read as "no lead".
WORTHWHILE = 0.05
# Two points: less is no win that would decide between two methods.
NO_WIN = 0.02

# Rank correlation at which one would trust a stand-in for accuracy: half of the variance in ranks (0.7
# squared).
TRUST = 0.7
# Below this, noise in the accuracies alone would keep any correlation low, so a low one says nothing.
READABLE = 0.5
# Rank correlation of languages before and after pruning above which the order is called the same: with seven
# languages 0.9 allows two swaps of neighbours or so (one swap: 0.964).
SAME_ORDER = 0.9

# "Carry over" from a small to a large model: the pattern shares more than a quarter of its variance.
CARRY_OVER = 0.5
# A large model is at least this big, and at least this many times the small one (the paper: 8 to 35 and 70
# billion parameters).
LARGE = 7e9
TIMES_LARGER = 4

# "Uniformly": any two calibration languages differ by less than a tenth of the mean loss.
UNIFORM = 0.10
# "Sits in": the loss in the middle and late blocks exceeds the early third's by a tenth of the mean loss.
DEEPER = 0.10
EARLY = 1 / 3  # blocks up to this share of the depth are early

# Jaccard: two masks that overlap by one point less than draws of one language do; a smaller change is within
# what the finite pool of text does to the ceiling.
MASK_MARGIN = 0.01

# Specific neurons that appear or vanish, as a share of the dense model's: a twentieth is the least that could
# be seen in a figure. The sparsities at which the paper shows it:
NEURON_MARGIN = 0.05
NEURON_SPARSITIES = (0.2, 0.5)
