"""Converts a Hugging Face directory of the BERT family to GGUF: BERT and XLM-RoBERTa, with either's tokenizer.

Matrices are stored in the requested number format. Biases, norms, positions and token types stay F32, since they are
small and are added, not multiplied. F16 is the default. It needs half the memory of F32 and is as fast on every CPU
kernel that was measured, and its vectors have a cosine of at least 0.99999 to those of F32.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from memory_embedder.errors import configuration_error, writing
from memory_embedder.models.convert.unigram import MODEL_FILE, unigram_of
from memory_embedder.models.convert.vocabulary import TokenizerFiles, Vocabulary, read_json
from memory_embedder.models.convert.wordpiece import wordpiece_of
from memory_embedder.models.profiles import Pooling

_POOLINGS = {
    Pooling.MEAN: gguf.PoolingType.MEAN,
    Pooling.CLS: gguf.PoolingType.CLS,
    Pooling.LAST: gguf.PoolingType.LAST,
}
_FAMILIES = ("bert", "xlm-roberta")
_SKIPPED = ("embeddings.position_ids", "pooler.", "cls.predictions", "cls.seq_relationship", "lm_head.")
# What NumPy has by itself. Packages such as ml_dtypes add bfloat16, so what it reads depends on what is imported.
_FORMATS = frozenset({"F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"})
_ALWAYS_F32 = ("position_embd", "token_types")
_WORDS = "token_embd.weight"
_POSITIONS = "position_embd.weight"
_MOST = 1 << 20  # of a width or a number of positions
_MOST_LAYERS = 512  # each makes names for a score of tensors
_MODULES = frozenset({"Transformer", "Pooling", "Normalize"})  # what llama.cpp and this service compute


class WeightType(StrEnum):
    """Number format of the converted matrices."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"


_GGML = {
    WeightType.F32: gguf.GGMLQuantizationType.F32,
    WeightType.F16: gguf.GGMLQuantizationType.F16,
    WeightType.Q8_0: gguf.GGMLQuantizationType.Q8_0,
}
_FILE_TYPE = {
    WeightType.F32: gguf.LlamaFileType.ALL_F32,
    WeightType.F16: gguf.LlamaFileType.MOSTLY_F16,
    WeightType.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
}


@dataclass(frozen=True, slots=True)
class BertShape:
    """Hyperparameters of a BERT network, and its pooling.

    `positions` is the number of those that a text may have. XLM-RoBERTa's table of positions has `unused_positions`
    more before them, since it counts from behind the id of its padding token.
    """

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    positions: int
    unused_positions: int
    token_types: int
    epsilon: float
    pooling: Pooling


def convert_bert(directory: Path, out: Path, *, weights: WeightType = WeightType.F16, name: str | None = None) -> None:
    """Convert a Hugging Face directory and write `out` atomically, so that a partial file never has this name.

    Raises:
        EmbedderError: the directory holds another kind of model, one of its files is missing or malformed, or `out`
            cannot be written.
    """
    shape = read_shape(directory)
    vocabulary = read_vocabulary(directory)
    writer = gguf.GGUFWriter(None, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.BERT])
    for tensor_name, data in _tensors(directory, shape):
        if tensor_name == _WORDS:
            vocabulary = vocabulary.padded(len(data))
        elif tensor_name == _POSITIONS:
            data = data[shape.unused_positions :]  # noqa: PLW2901 -- the rest of the same tensor
        kind = _tensor_type(tensor_name, data, weights)
        try:
            writer.add_tensor(tensor_name, gguf.quants.quantize(data, kind), raw_dtype=kind)
        except gguf.quants.QuantError as error:
            raise configuration_error(
                f"{directory}: the tensor '{tensor_name}' of shape {data.shape} cannot be stored as {kind.name}; "
                "convert to f16.",
            ) from error
        except ValueError as error:
            raise configuration_error(
                f"{directory} holds the tensor '{tensor_name}' twice; leave one set of weights in it.",
            ) from error
    _write_metadata(writer, shape, vocabulary, name or directory.name, weights)
    with writing(out):
        _write(writer, out)


def _write(writer: gguf.GGUFWriter, out: Path) -> None:
    partial = out.with_name(out.name + ".partial")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        writer.write_header_to_file(partial)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        partial.replace(out)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_shape(directory: Path) -> BertShape:
    """Read the network's hyperparameters and its pooling from a Hugging Face directory.

    Raises:
        EmbedderError: the configuration is missing or malformed, or llama.cpp does not support such a network.
    """
    config = _config(directory / "config.json")
    family = config.get("model_type")
    if family not in _FAMILIES:
        raise configuration_error(
            f"{directory} holds a '{family}' model; this converter takes {' and '.join(_FAMILIES)}. "
            "Convert other families with llama.cpp's own script and serve the file as it is.",
        )
    if config.get("hidden_act", "gelu") != "gelu" or config.get("position_embedding_type", "absolute") != "absolute":
        raise configuration_error(
            f"{directory}: only gelu activation and absolute positions are what llama.cpp computes for BERT.",
        )
    _check_modules(directory)

    def number(key: str, default: int | None = None, *, least: int = 1, most: int = _MOST) -> int:
        value = config.get(key, default)
        if type(value) is not int or not least <= value <= most:
            raise configuration_error(
                f"{directory}/config.json lacks the number '{key}', from {least} to {most}; download the model again.",
            )
        return value

    unused = 0 if family == "bert" else 1 + number("pad_token_id", 1, least=0)
    return BertShape(
        layers=number("num_hidden_layers", most=_MOST_LAYERS),
        hidden=number("hidden_size"),
        feed_forward=number("intermediate_size"),
        heads=number("num_attention_heads"),
        positions=number("max_position_embeddings", least=1 + unused) - unused,
        unused_positions=unused,
        token_types=number("type_vocab_size", 1),
        epsilon=_epsilon(config.get("layer_norm_eps"), directory),
        pooling=_read_pooling(directory),
    )


def read_vocabulary(directory: Path) -> Vocabulary:
    """Read the vocabulary of a Hugging Face directory.

    Raises:
        EmbedderError: the tokenizer is neither WordPiece nor Unigram, or its files are missing or malformed.
    """
    files = TokenizerFiles.read(directory)
    model = files.part("model")
    if files.tokenizer:  # files of early releases do not name the type
        kind = model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else "WordPiece")
    else:
        kind = "Unigram" if (directory / MODEL_FILE).is_file() else "WordPiece"
    if kind == "Unigram":
        return unigram_of(files)
    if kind == "WordPiece":
        return wordpiece_of(files)
    raise configuration_error(
        f"{directory} has a {kind} tokenizer; this converter takes WordPiece and Unigram (the BERT family). "
        "Convert other families with llama.cpp's own script.",
    )


def _epsilon(value: object, directory: Path) -> float:
    if type(value) not in {int, float} or not 0 < float(value) < 1:  # type: ignore[arg-type]  # a number, as just seen
        raise configuration_error(
            f"{directory}/config.json lacks the number 'layer_norm_eps', between 0 and 1; download the model again.",
        )
    return float(value)  # type: ignore[arg-type]  # the same


def _check_modules(directory: Path) -> None:
    """Refuse a model whose vectors pass through further layers after pooling, which would be left out."""
    path = directory / "modules.json"
    if not path.exists():
        return
    modules = read_json(path)
    types = [str(module.get("type")).rpartition(".")[2] for module in modules] if _are_objects(modules) else [None]
    further = [name for name in types if name not in _MODULES]
    if further:
        raise configuration_error(
            f"{path} names the module '{further[0]}', which would be left out, so that the vectors would be wrong; "
            f"this converter takes {', '.join(sorted(_MODULES))}.",
        )


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _read_pooling(directory: Path) -> Pooling:
    config = _config(directory / "1_Pooling" / "config.json")
    switches = {
        "pooling_mode_mean_tokens": Pooling.MEAN,
        "pooling_mode_cls_token": Pooling.CLS,
        "pooling_mode_lasttoken": Pooling.LAST,
    }
    chosen = [pooling for key, pooling in switches.items() if config.get(key)]
    if len(chosen) != 1:
        raise configuration_error(f"{directory}/1_Pooling/config.json must switch on exactly one known pooling mode.")
    return chosen[0]


def _config(path: Path) -> dict[str, Any]:
    loaded = read_json(path)
    if not isinstance(loaded, dict):
        raise configuration_error(f"{path} does not hold a JSON object; download the model again.")
    return loaded


def _write_metadata(
    writer: gguf.GGUFWriter, shape: BertShape, vocabulary: Vocabulary, name: str, weights: WeightType
) -> None:
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_file_type(_FILE_TYPE[weights])
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(shape.epsilon)
    writer.add_causal_attention(False)  # noqa: FBT003 -- the library's signature
    writer.add_pooling_type(_POOLINGS[shape.pooling])
    writer.add_token_type_count(shape.token_types)
    vocabulary.write_to(writer)


def _tensors(directory: Path, shape: BertShape) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, shape.layers)
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise configuration_error(
            f"{directory} has no .safetensors file; download the safetensors form of the model.",
        )
    for path in files:
        for key, data in _stored(path):
            source = _plain_name(key)
            if source.startswith(_SKIPPED):
                continue
            target = names.get_name(source, try_suffixes=(".weight", ".bias"))
            if target is None:
                raise configuration_error(
                    f"{path.name} holds an unexpected tensor '{key}'; it is not a BERT encoder.",
                )
            yield target, data.astype(np.float32)


def _stored(path: Path) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    try:
        with safe_open(path, framework="numpy") as weights:
            for key in weights.keys():  # noqa: SIM118 -- not a dictionary
                yield key, _read(path, weights, key)
    except (OSError, SafetensorError, ValueError) as error:
        raise configuration_error(f"{path} is not a readable .safetensors file; download the model again.") from error


def _read(path: Path, weights: Any, key: str) -> npt.NDArray[Any]:  # noqa: ANN401 -- of an untyped library
    kind = weights.get_slice(key).get_dtype()
    if kind not in _FORMATS:
        raise configuration_error(
            f"{path} holds the tensor '{key}' in the number format {kind}, which this converter does not read; convert "
            "the weights to F16 or F32 first.",
        )
    return weights.get_tensor(key)  # type: ignore[no-any-return]


def _plain_name(key: str) -> str:
    name = key.removeprefix("bert.").removeprefix("roberta.")
    if name.endswith(".gamma"):
        return name.removesuffix(".gamma") + ".weight"
    if name.endswith(".beta"):
        return name.removesuffix(".beta") + ".bias"
    return name


def _tensor_type(name: str, data: npt.NDArray[np.float32], weights: WeightType) -> gguf.GGMLQuantizationType:
    if data.ndim < 2 or name.startswith(_ALWAYS_F32):
        return gguf.GGMLQuantizationType.F32
    return _GGML[weights]
