"""Makes a worse model of a real one: the first layers of a BERT, as a model file of its own.

The file is valid, and every vector has the right dimensions and a length of one. Only the quality is poor, like that of
a model that was converted or trained badly. Nothing but the gate of a swap can notice that.
"""

from pathlib import Path

import gguf


def truncate(source: Path, target: Path, *, layers: int) -> None:
    """Write a GGUF file with the first `layers` layers of the BERT in `source`.

    Raises:
        ValueError: `source` has no more layers than that.
    """
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    count = f"{architecture}.block_count"
    if int(reader.fields[count].contents()) <= layers:
        raise ValueError(f"{source} has no more than {layers} layers")
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind, *parts = field.types
        value = layers if name == count else field.contents()
        writer.add_key_value(name, value, kind, parts[0] if parts else None)
    for tensor in reader.tensors:
        block = tensor.name.split(".")[1] if tensor.name.startswith("blk.") else "0"
        if int(block) < layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
