"""Where the model files are that set-up leaves outside the clone."""

import os
from pathlib import Path

CACHE = Path(os.environ.get("MEMORY_INDEX_CACHE", Path.home() / ".cache" / "memory-index"))
DEFAULT_MODEL = "all-MiniLM-L6-v2"
DEFAULT_MODEL_FILE = CACHE / "models" / f"{DEFAULT_MODEL}.gguf"
SECOND_MODEL_FILE = CACHE / "models" / "bge-small-en-v1.5.gguf"
MULTILINGUAL_MODEL = "multilingual-e5-small"
MULTILINGUAL_MODEL_FILE = CACHE / "models" / f"{MULTILINGUAL_MODEL}.gguf"
