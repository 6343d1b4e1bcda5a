"""Writes a causal model that is so small that it computes at once."""

from pathlib import Path
from string import ascii_letters

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, HEAD, HIDDEN = 64, 2, 4, 16, 192
END = 60  # the special token that ends a text


def write_causal(
    path: Path, *, words: int = 64, ends: bool = True, infinite_word: int | None = None, pre: str = "qwen2"
) -> None:
    """Write a model of Qwen3's architecture with last pooling and two narrow layers of random weights.

    Its first 52 words are the letters, so that texts have tokens. With `ends` False, the file does not say that a text
    ends with a special token. The weights of the token `infinite_word` are infinite. `pre` is llama.cpp's name of the
    rules by which a text is divided into words.
    """
    embeddings = np.random.default_rng(2).standard_normal((words, WIDTH)).astype(np.float16)
    if infinite_word is not None:
        embeddings[infinite_word] = np.inf
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_pooling_type(gguf.PoolingType.LAST)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*ascii_letters, *(f"word{number}" for number in range(len(ascii_letters), words))])
    writer.add_token_types([gguf.TokenType.NORMAL] * words)
    writer.add_token_merges(["w o"])
    writer.add_eos_token_id(END)
    if ends:
        writer.add_add_eos_token(True)  # noqa: FBT003 -- the library's signature
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH, WIDTH),
        "attn_v": (WIDTH, WIDTH),
        "attn_output": (WIDTH, WIDTH),
    }
    shapes |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    norms = {"attn_norm": WIDTH, "ffn_norm": WIDTH, "attn_q_norm": HEAD, "attn_k_norm": HEAD}
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", random.standard_normal(shape).astype(np.float16))
        for name, width in norms.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
