"""Turns texts into token ids with a model's vocabulary, in a short time even for unusual texts."""

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native

from memory_embedder.engine.normalizing import normalize, normalizing_rules
from memory_embedder.engine.protocol import EncodedText, PairTokenizer, TokenIds
from memory_embedder.errors import EmbedderError, ErrorKind

_CHARACTERS_PER_TOKEN = 24  # of the prefix that is tokenised first
_MOST_CHARACTERS_PER_TOKEN = 384  # of the longer one that is tokenised if the first did not fill the window
_MOST_CHARACTERS = 262_144  # of that prefix in a long window: each takes about a hundred bytes and a microsecond
_MOST_AT_ONCE = 8192  # characters of a text for a vocabulary of merged pairs, which llama.cpp divides into words first


def missing_special_token(vocabulary: Any) -> str | None:  # noqa: ANN401 -- a pointer of an untyped library
    """Return the metadata of a special token that the tokenizer puts into every text but the file does not name.

    llama.cpp ends the process as soon as it tokenises with such a vocabulary.
    """
    word_piece = native.llama_vocab_type(vocabulary) == native.LLAMA_VOCAB_TYPE_WPM
    needed = {
        "bos": (word_piece or native.llama_vocab_get_add_bos(vocabulary), native.llama_vocab_bos),
        "seperator": (word_piece, native.llama_vocab_sep),
        "eos": (not word_piece and native.llama_vocab_get_add_eos(vocabulary), native.llama_vocab_eos),
    }
    missing = (name for name, (puts, token) in needed.items() if puts and token(vocabulary) < 0)
    return next((f"tokenizer.ggml.{name}_token_id" for name in missing), None)


class Tokenizer:
    """A model's tokenizer; `vocabulary` is llama.cpp's pointer, `max_tokens` the model's window. Thread-safe.

    No special token of the vocabulary may be missing (`missing_special_token`).
    With `normalizes`, texts are stripped of accents here, and llama.cpp must have been told not to do so itself.
    `begins` and `ends` say whether a text's tokens begin and end with the special token of the vocabulary; files are in
    circulation that lack the metadata for it.
    """

    def __init__(self, vocabulary: Any, max_tokens: int, *, normalizes: bool) -> None:  # noqa: ANN401 -- a pointer of an untyped library
        self._vocabulary = vocabulary
        self._max_tokens = max_tokens
        self._normalizes = normalizes
        if normalizes:
            normalizing_rules()  # while the model loads, so that no text waits for them
        self._merges_pairs = native.llama_vocab_type(vocabulary) == native.LLAMA_VOCAB_TYPE_BPE
        tokens = self._tokenize("a")
        eos, sep = native.llama_vocab_eos(vocabulary), native.llama_vocab_sep(vocabulary)
        self.begins = int(tokens[0]) == native.llama_vocab_bos(vocabulary)
        self.ends = int(tokens[-1]) in {eos, sep}
        # Every network with a Unigram vocabulary is one of XLM-RoBERTa's; older files do not say what that means.
        doubles = native.llama_vocab_get_add_sep(vocabulary) or (
            native.llama_vocab_type(vocabulary) == native.LLAMA_VOCAB_TYPE_UGM
        )
        self._doubles_separator = doubles and native.llama_vocab_get_add_eos(vocabulary)

    def encode(self, text: str) -> EncodedText:
        """Tokenise a text; a text longer than the model's window loses its end but keeps the final special token."""
        return self._encode(text, self._max_tokens)

    def pair_tokenizer(self, query: str) -> PairTokenizer:
        """Return a function that tokenises the query together with each text, into the inputs of a cross-encoder.

        As in the training of cross-encoders of the BERT family, these are `[CLS] query [SEP] text [SEP]`, and
        `<s> query </s></s> text </s>` for RoBERTa. The query may take half of the window; the text gets the rest. The
        first call tokenises the query.
        """
        first = cache(lambda: self._encode(query, self._max_tokens // 2))

        def encode(texts: Sequence[str]) -> list[EncodedText]:
            between = first().tokens[-1:] if self._doubles_separator else first().tokens[:0]
            start = np.concatenate([first().tokens, between])
            seconds = [self._encode(text, self._max_tokens - len(start) + 1) for text in texts]
            return [
                EncodedText(np.concatenate([start, second.tokens[1:]]), truncated=first().truncated or second.truncated)
                for second in seconds
            ]

        return encode

    def _encode(self, text: str, limit: int) -> EncodedText:
        """Tokenise a text to at most `limit` tokens.

        At most 384 characters per token of the limit are read, and of these at most 262,144, or 24 per token if that is
        more. Only a text of white space or combining marks has fewer tokens for its length, and tokenising all of such
        a text would take seconds.
        """
        length = limit * _CHARACTERS_PER_TOKEN
        most = max(length, min(limit * _MOST_CHARACTERS_PER_TOKEN, _MOST_CHARACTERS))
        tokens = self._tokenize(text[:length])
        # Beyond an eighth more than the limit, a word that the cut has split does not count.
        if length < min(most, len(text)) and len(tokens) <= limit + limit // 8:
            length = most
            tokens = self._tokenize(text[:length])
        if length >= len(text) and len(tokens) <= limit:
            return EncodedText(tokens, truncated=False)
        if not self.ends:
            return EncodedText(tokens[:limit], truncated=True)
        return EncodedText(np.append(tokens[:-1][: limit - 1], tokens[-1:]), truncated=True)

    def _tokenize(self, text: str) -> TokenIds:
        if self._normalizes:
            text = normalize(text)
        if self._merges_pairs and len(text) > _MOST_AT_ONCE:
            around = self._tokens("a", special=True)
            inner = [self._tokens(piece, special=False) for piece in _pieces(text)]
            tokens = np.concatenate([around[: int(self.begins)], *inner, around[len(around) - int(self.ends) :]])
        else:
            tokens = self._tokens(text, special=True)
        if not len(tokens):
            raise EmbedderError(ErrorKind.ENGINE, "The tokenizer failed on an input; its text is not recorded.")
        return tokens

    def _tokens(self, text: str, *, special: bool) -> TokenIds:
        data = text.encode()
        buffer = np.empty(len(data) + 8, dtype=np.int32)
        count = self._write_tokens(data, buffer, special=special)
        if count < 0:  # a vocabulary that normalises may write one character as several words
            buffer = np.empty(-count, dtype=np.int32)
            count = self._write_tokens(data, buffer, special=special)
        return buffer[: max(0, count)].copy()

    def _write_tokens(self, data: bytes, buffer: TokenIds, *, special: bool) -> int:
        """Tokenise UTF-8 into `buffer` and return the number of tokens, or its negative if they do not fit.

        With `special`, they begin and end with the special tokens that the vocabulary puts around a text.
        """
        pointer = buffer.ctypes.data_as(ctypes.POINTER(native.llama_token))
        return int(native.llama_tokenize(self._vocabulary, data, len(data), pointer, len(buffer), special, False))  # noqa: FBT003 -- C parameters have no names


def _pieces(text: str) -> Iterator[str]:
    """Yield the parts of a text, of at most 8,192 characters each, cut before a space or else behind a line.

    llama.cpp divides a text into words by regular expressions. By those that it has no code of its own for, it descends
    some calls for each character of a word, a line or a run of spaces, and ends the process at some 25,000 of them
    (https://github.com/ggml-org/llama.cpp/issues/27783).
    """
    begin = 0
    while len(text) - begin > _MOST_AT_ONCE:
        end = begin + _MOST_AT_ONCE
        cut = text.rfind(" ", begin + 1, end)
        if cut < 0:
            cut = text.rfind("\n", begin, end) + 1 or end
        yield text[begin:cut]
        begin = cut
    yield text[begin:]
