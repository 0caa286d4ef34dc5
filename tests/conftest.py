"""Settings for every test: offline, and one thread so that bits do not depend on the machine's load."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
