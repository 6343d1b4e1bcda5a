"""Embeds texts by PyTorch or ONNX Runtime, as a service of one of them would; runs with the peers' own packages.

Usage: program.py KIND DIRECTORY THREADS, where KIND is `pytorch-f32`, `pytorch-bf16`, `onnx-f32` or `onnx-int8`, and
DIRECTORY holds the model in the form of sentence-transformers. Each line of standard input is a JSON object. `{"time":
texts}` embeds all texts and prints the seconds; `{"calibrate": texts}` tries numbers of texts in a batch, keeps the
fastest, and prints the texts a second of each; `{"vectors": texts}` prints the vectors. Texts are sorted by length
before they are divided into batches. Nothing of this project is imported.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_OPSET = 17


class PyTorch:
    """sentence-transformers on PyTorch."""

    def __init__(self, directory: Path, kind: str, threads: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        model = SentenceTransformer(str(directory), device="cpu")
        self._model = model.bfloat16() if kind == "bf16" else model.float()

    def embed(self, texts: list[str], batch: int) -> np.ndarray:
        """Return unit vectors; the library itself sorts the texts by length."""
        found = self._model.encode(
            texts, batch_size=batch, normalize_embeddings=True, convert_to_tensor=True, show_progress_bar=False
        )
        return np.asarray(found.float().numpy())


class Onnx:
    """ONNX Runtime with the published tokenizer; in INT8, products are of dynamically quantised activations."""

    def __init__(self, directory: Path, kind: str, threads: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        file = exported(directory, kind)
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.enable_padding()
        limit = json.loads((directory / "sentence_bert_config.json").read_text(encoding="utf-8"))["max_seq_length"]
        self._tokenizer.enable_truncation(limit)

    def embed(self, texts: list[str], batch: int) -> np.ndarray:
        """Return one vector for each text: the mean of the vectors of its tokens, divided by its length."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        found: list[np.ndarray] = [np.empty(0)] * len(texts)
        for first in range(0, len(texts), batch):
            places = order[first : first + batch]
            encoded = self._tokenizer.encode_batch([texts[place] for place in places])
            ids = np.array([one.ids for one in encoded], dtype=np.int64)
            mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            (states,) = self._session.run(None, given)
            means = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            for place, vector in zip(places, means, strict=True):
                found[place] = vector
        return np.array(found)


def exported(directory: Path, kind: str) -> Path:
    """Return the model's ONNX file, which PyTorch writes once, in F32 or with matrices in INT8."""
    plain, quantised = directory / "model-f32.onnx", directory / "model-int8.onnx"
    if not plain.exists():
        partial = directory / f"model-{os.getpid()}.onnx"  # another peer may be writing it, too
        _export(directory, partial)
        partial.rename(plain)
    if kind == "f32":
        return plain
    if not quantised.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.shape_inference import quant_pre_process

        prepared = directory / "model-prepared.onnx"
        quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
        quantize_dynamic(str(prepared), str(quantised), weight_type=QuantType.QInt8)
    return quantised


def _export(directory: Path, target: Path) -> None:
    """Write a model in the form of ONNX, which takes tokens by place and returns the states of all tokens alone."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(directory, attn_implementation="eager").float().eval()
    model.config.return_dict = False

    class States(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not installed where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types)[0]

    names = ("input_ids", "attention_mask", "token_type_ids")
    torch.onnx.export(
        States(),
        tuple(torch.ones((2, 8), dtype=torch.int64) for _ in names),
        str(target),
        input_names=list(names),
        output_names=["states"],
        dynamic_axes={name: {0: "texts", 1: "tokens"} for name in (*names, "states")},
        opset_version=_OPSET,
        dynamo=False,
    )


def main(kind: str, directory: str, threads: str) -> None:
    """Answer until standard input ends."""
    library, _, precision = kind.partition("-")
    peer = (PyTorch if library == "pytorch" else Onnx)(Path(directory), precision, int(threads))
    batch = 32
    for line in sys.stdin:
        given = json.loads(line)
        answer: object
        if "calibrate" in given:
            texts, rates = given["calibrate"], {}
            for size in _BATCHES:
                peer.embed(texts[: 2 * size], size)
                began = time.perf_counter()
                peer.embed(texts, size)
                rates[size] = len(texts) / (time.perf_counter() - began)
            batch = max(rates, key=lambda size: rates[size])
            answer = {"batch": batch, "texts_a_second": rates}
        elif "vectors" in given:
            answer = peer.embed(given["vectors"], batch).tolist()
        else:
            began = time.perf_counter()
            peer.embed(given["time"], batch)
            answer = time.perf_counter() - began
        sys.__stdout__.write(json.dumps(answer) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    sys.stdout = sys.stderr  # what the libraries print
    main(*sys.argv[1:])
