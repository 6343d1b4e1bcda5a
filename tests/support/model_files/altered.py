"""Writes copies of a model file that are as broken or as unusual as files of others may be."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

_EMBEDDINGS = "token_embd.weight"
_TOKENS = "tokenizer.ggml.tokens"
_WORD_START = "\u2581"


def write_altered(
    source: Path,
    target: Path,
    *,
    poisoned_word: str | None = None,
    numbers: Mapping[str, int] | None = None,
    values: Mapping[str, object] | None = None,
) -> None:
    """Copy the GGUF file `source` to `target`.

    The weights of `poisoned_word` become infinite, so that no text with this word has a finite vector. `numbers` are
    added to the metadata, each below the name of the architecture. `values` take the places of those that the file has;
    a value of None is left out.
    """
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for key, found in reader.fields.items():
        value = (values or {}).get(key, found.contents())
        if value is not None and not key.startswith("GGUF.") and key != "general.architecture":
            kind = found.types[0]
            kept = key not in (values or {}) and kind == gguf.GGUFValueType.ARRAY
            more = {"sub_type": found.types[-1]} if kept else {}
            writer.add_key_value(key, value, kind, **more)
    for key, value in (numbers or {}).items():
        writer.add_uint32(f"{architecture}.{key}", value)
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        if poisoned_word is not None and tensor.name == _EMBEDDINGS:
            data[reader.fields[_TOKENS].contents().index(_WORD_START + poisoned_word), 0] = np.inf
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
