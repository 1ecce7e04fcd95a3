"""Text to token ids: bytes, a byte-level BPE (Sennrich et al. 2016; Radford et al. 2019), or a `tokenizers` file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as _Tokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from orchestrator.spec.sections import DataSpec

Ids = npt.NDArray[np.int32]

UNUSED_BYTE = 0xFF
"""Never occurs in UTF-8 (RFC 3629, section 1): ends documents without a symbol more."""
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
"""Tokens that end a document in published tokenizers, tried in this order."""


class Tokenizer(Protocol):
    @property
    def vocab_size(self) -> int: ...

    @property
    def end_of_document(self) -> int:
        """Id of the token that ends a document; `encode` never gives it."""

    @property
    def identity(self) -> str:
        """Equal for tokenizers that give equal ids."""

    def encode(self, text: str) -> Ids: ...

    def decode(self, ids: Ids) -> str: ...


class BytesTokenizer:
    """Token id = byte of the UTF-8 text; 256 symbols."""

    vocab_size = 256
    end_of_document = UNUSED_BYTE
    identity = "bytes"

    def encode(self, text: str) -> Ids:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def decode(self, ids: Ids) -> str:
        return ids.astype(np.uint8).tobytes().decode(errors="replace")


class BpeTokenizer:
    """Byte-level BPE. Training counts and merges in a fixed order: equal text gives equal merges everywhere."""

    by_line = True
    """Lines are encoded one by one."""

    def __init__(self, text: str | Iterable[str], vocab_size: int) -> None:
        """`text` is the whole of it, or its pieces; pieces end at ends of lines."""
        pieces = [text] if isinstance(text, str) else text
        self._tokenizer = _Tokenizer(models.BPE())
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            # All 256 bytes, seen or not: held-back text may hold bytes that training text does not.
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        lines = (line for piece in pieces for line in piece.splitlines(keepends=True))
        self._tokenizer.train_from_iterator(lines, trainer)

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @property
    def end_of_document(self) -> int:
        return _id_of_unused_byte(self._tokenizer)

    @property
    def identity(self) -> str:
        return _identity(self.serialized())

    def encode(self, text: str) -> Ids:
        lines = self._tokenizer.encode_batch(text.splitlines(keepends=True))
        return np.concatenate(
            [np.asarray(line.ids, dtype=np.int32) for line in lines] or [np.empty(0, np.int32)]
        )

    def decode(self, ids: Ids) -> str:
        return str(self._tokenizer.decode(ids.tolist()))

    def serialized(self) -> str:
        """The tokenizer as JSON: equal for equal training text."""
        return str(self._tokenizer.to_str())


class FileTokenizer:
    """A tokenizer as the `tokenizers` library saves it. Names of special tokens inside text are text."""

    def __init__(self, path: str, *, end_of_document: str | None, field: str) -> None:
        """`field` names, in messages, where `path` was given. ValueError when it is no such file."""
        try:
            text = Path(path).read_text("utf-8")
        except OSError as error:
            raise ValueError(
                f"{field}: tokenizer {path!r} cannot be read: {error.strerror}; give a file that every node sees"
            ) from None
        except UnicodeDecodeError:
            raise ValueError(f"{field}: {path!r} is no UTF-8 text, so no tokenizers JSON file") from None
        try:
            self._tokenizer = _Tokenizer.from_str(text)
        # The library raises plain Exception.
        except Exception as error:
            raise ValueError(f"{field}: {path!r} is no tokenizers JSON file: {error}") from None
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        saved = json.loads(text)
        # One of `BpeTokenizer`: it encodes line by line, and has no token but bytes and their merges.
        bytes_alone = (
            (saved.get("decoder") or {}).get("type") == "ByteLevel"
            and not saved.get("added_tokens")
            and self._tokenizer.token_to_id(chr(UNUSED_BYTE)) is not None
        )
        self.by_line = bytes_alone and saved.get("pre_tokenizer") == _byte_level()
        self.identity = _identity(str(self._tokenizer.to_str()))
        self.vocab_size = self._highest_id() + 1
        self.end_of_document = self._end(end_of_document, path, field, bytes_alone=bytes_alone)

    def encode(self, text: str) -> Ids:
        parts = text.splitlines(keepends=True) if self.by_line else [text]
        encoded = self._tokenizer.encode_batch(parts, add_special_tokens=False)
        return np.concatenate([np.asarray(part.ids, np.int32) for part in encoded] or [np.empty(0, np.int32)])

    def decode(self, ids: Ids) -> str:
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False))

    def serialized(self) -> str:
        """The tokenizer as JSON."""
        return str(self._tokenizer.to_str())

    def _highest_id(self) -> int:
        """Ids may leave gaps, so their number says less."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def _end(self, named: str | None, path: str, field: str, *, bytes_alone: bool) -> int:
        for token in (named,) if named is not None else ENDS:
            found = self._tokenizer.token_to_id(token)
            if found is not None:
                return int(found)
        if named is not None:
            raise ValueError(
                f"{field}: {path!r} has no token {named!r} to end documents with (end_of_document)"
            )
        if bytes_alone:
            return _id_of_unused_byte(self._tokenizer)
        raise ValueError(
            f"{field}: {path!r} has none of {', '.join(ENDS)}; name the token that ends a document (end_of_document)"
        )


def build_tokenizer(spec: DataSpec, training_text: str | Iterable[str]) -> Tokenizer:
    """The tokenizer of `spec`; a BPE is trained on `training_text` alone, never on what is held back."""
    if spec.tokenizer == "bytes":
        return BytesTokenizer()
    if spec.tokenizer == "bpe":
        return BpeTokenizer(training_text, spec.vocab_size)
    assert spec.tokenizer_file is not None
    return FileTokenizer(
        spec.tokenizer_file, end_of_document=spec.end_of_document, field="data.tokenizer_file"
    )


def check_vocabulary(tokenizer_size: int, spec: DataSpec, *, what: str) -> None:
    """ValueError when ids would lie outside the model's embedding."""
    if tokenizer_size > spec.vocab_size:
        raise ValueError(
            f"data.vocab_size: {what} has ids up to {tokenizer_size - 1}; must be at least {tokenizer_size}, "
            f"not {spec.vocab_size}"
        )


def _byte_level() -> dict[str, object]:
    """How the pre-tokenizer of `BpeTokenizer` is written down."""
    tokenizer = _Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return dict(json.loads(tokenizer.to_str())["pre_tokenizer"])


def _id_of_unused_byte(tokenizer: _Tokenizer) -> int:
    # Byte-level alphabets write printable Latin-1 bytes as the character of that number: 0xFF is ÿ.
    found = tokenizer.token_to_id(chr(UNUSED_BYTE))
    assert found is not None, "a byte-level alphabet holds every byte"
    return int(found)


def _identity(serialized: str) -> str:
    return f"sha256:{hashlib.sha256(serialized.encode()).hexdigest()}"
