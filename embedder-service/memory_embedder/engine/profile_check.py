"""Checks that a model file is what its profile says: its header before llama.cpp loads it, its tokens afterwards."""

from pathlib import Path

from memory_embedder.errors import configuration_error
from memory_embedder.models.gguf_header import GgufFacts
from memory_embedder.models.profiles import PROFILES, ModelProfile, Pooling, plain_name


def check_profile(header: GgufFacts, profile: ModelProfile, path: Path, *, digest: str | None) -> None:
    """Check that a model file agrees with its profile: a wrong pooling would yield plausible but wrong vectors.

    `digest` is the one that was asked for. Without it, the name in the file must be that of a known model, too.

    Raises:
        EmbedderError: name, dimensions or pooling differ, the file gives out vectors of another width than its
            network's, the profile's window is longer than the model was trained for, or a reranker is declared that the
            file is not.
    """
    named = header.name is not None and plain_name(header.name) != plain_name(profile.name)
    if named and digest is None and profile.name in PROFILES:
        raise configuration_error(
            f"{path} says that it is the model '{header.name}', not {profile.name}; serve the right file, or name the "
            "model by --model. If the file is right all the same, say so with its --digest.",
        )
    if profile.pooling is Pooling.RANK:
        check_reranker(header, path)
    elif header.dimensions != profile.width:
        raise configuration_error(
            f"{path} yields {header.dimensions} dimensions but {profile.name} is declared with {profile.width}; "
            "serve the right file or correct --dimensions.",
        )
    if header.output_width != header.dimensions:
        raise configuration_error(
            f"{path} gives out {header.output_width} numbers for a text ('embedding_length_out') from a network of "
            f"{header.dimensions}, which is not served; serve a file without such a projection.",
        )
    if header.pooling is not None and header.pooling is not profile.pooling:
        raise configuration_error(
            f"{path} was made for {header.pooling} pooling but {profile.name} uses {profile.pooling}; "
            "serve the right file or correct --pooling.",
        )
    if header.context_length < profile.max_tokens:
        raise configuration_error(
            f"{path} was trained for {header.context_length} tokens, fewer than the {profile.max_tokens} of "
            f"{profile.name}; serve the right file or lower --max-tokens.",
        )


def check_reranker(header: GgufFacts, path: Path) -> None:
    """Check that llama.cpp computes the scores of a reranker as they were trained.

    llama.cpp gives every token the first token type. A model that was trained to tell the query from the text by two
    types would yield plausible but wrong scores, as would a model that was trained on a prompt.

    Raises:
        EmbedderError: the file has no classifier with one output, is a causal model or has several token types.
    """
    reason = None
    if header.classifier_outputs != 1:
        reason = f"has a classifier of {header.classifier_outputs} outputs where a reranker has one; it is no reranker"
    elif header.causal:
        reason = "is a causal model, which ranks by a prompt of its own; only encoders are served as rerankers"
    elif header.token_types > 1:
        reason = f"tells texts apart by {header.token_types} token types, of which llama.cpp computes only the first"
    if reason is not None:
        raise configuration_error(
            f"{path} {reason}. Give --reranker-file the GGUF file of a cross-encoder such as bge-reranker-base.",
        )


def check_special_tokens(profile: ModelProfile, path: Path, *, begins: bool, ends: bool) -> None:
    """Check that the special tokens are there whose states the model pools, or by which it tells pairs apart.

    `begins` and `ends` say whether the tokens of a text begin and end with a special token. Without it, a vector would
    be the state of a word.

    Raises:
        EmbedderError: the model has CLS pooling and texts do not begin with one, it has last pooling and they do not
            end with one, or it is a reranker and one of the two is missing.
    """
    missing = []
    if not begins and profile.pooling in {Pooling.CLS, Pooling.RANK}:
        missing.append("tokenizer.ggml.add_bos_token")
    if not ends and profile.pooling in {Pooling.LAST, Pooling.RANK}:
        missing.append("tokenizer.ggml.add_eos_token")
    if missing:
        raise configuration_error(
            f"{path} does not set {' and '.join(missing)}, so its texts lack a special token that {profile.name} was "
            f"trained with; {profile.pooling} pooling needs it. Convert the model again with a newer llama.cpp.",
        )
