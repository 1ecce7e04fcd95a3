"""The tokenizer of a job, found again, and as the files that Hugging Face transformers loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as _Tokenizer

from actors.training.data.corpus import split_text
from actors.training.data.sources import tokenizer_of_sources
from actors.training.data.text import read_text
from actors.training.data.tokenizer import (
    BpeTokenizer,
    BytesTokenizer,
    FileTokenizer,
    Tokenizer,
    build_tokenizer,
)
from actors.training.interchange.names import TOKENIZER_NAME
from orchestrator.spec.sections import DataSpec

SETTINGS_NAME = "tokenizer_config.json"

_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Where `str.splitlines` cuts."""
_LINE = rf"[^{_LINE_ENDS}]*(?:\r\n|[{_LINE_ENDS}])|[^{_LINE_ENDS}]+"


def job_tokenizer(spec: DataSpec, *, identity: str | None) -> Tokenizer:
    """The tokenizer that the ranks of a job used. A BPE is trained again, which gives the same one as long as the text
    is the same. ValueError when text or file cannot be read, or the tokenizer is not that of `identity`, if given."""
    tokenizer = _made_again(spec)
    if identity not in (None, tokenizer.identity):
        where = "data.tokenizer_file" if spec.tokenizer == "file" else "data.tokenizer"
        raise ValueError(
            f"{where}: what it is made from has changed since the job was trained (or the tokenizers library), and "
            "gives another tokenizer; put back what was there"
        )
    return tokenizer


def _made_again(spec: DataSpec) -> Tokenizer:
    if spec.sources:
        return tokenizer_of_sources(spec)
    if spec.tokenizer != "bpe":
        return build_tokenizer(spec, "")
    training_text, _ = split_text(read_text(spec.source), spec)
    return build_tokenizer(spec, training_text)


def write_tokenizer(directory: Path, tokenizer: Tokenizer, *, positions: int) -> list[Path]:
    """Writes what `AutoTokenizer.from_pretrained` reads; the files written."""
    if isinstance(tokenizer, BytesTokenizer):
        text = _bytes_as_bpe().to_str(pretty=True)
    else:
        assert isinstance(tokenizer, BpeTokenizer | FileTokenizer)
        text = tokenizer.serialized()
        if tokenizer.by_line:
            text = _by_line(text)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
    }
    files = [directory / TOKENIZER_NAME, directory / SETTINGS_NAME]
    files[0].write_text(text, "utf-8")
    files[1].write_text(json.dumps(settings, indent=2) + "\n")
    return files


def _bytes_as_bpe() -> _Tokenizer:
    """A BPE without merges whose id of a byte is the byte."""
    vocabulary = {character: byte for byte, character in enumerate(_characters_of_bytes())}
    tokenizer = _Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _characters_of_bytes() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies (Radford et al. 2019, encoder.py): itself
    where it prints, else the next one from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unprintable = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + unprintable.index(byte)) for byte in range(256)]


def _by_line(serialized: str) -> str:
    """The same tokenizer cutting text into lines by itself, as `BpeTokenizer.encode` does before it."""
    tokenizer = _Tokenizer.from_str(serialized)
    lines = pre_tokenizers.Split(Regex(_LINE), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([lines, tokenizer.pre_tokenizer])
    return str(tokenizer.to_str(pretty=True))
