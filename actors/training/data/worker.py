"""A process that tokenises shards: `python -m actors.training.data.worker PARENT`, one JSON document a line each way.

The first line says how, each further one names a shard; each is answered by `{}` or `{"error": ...}`. It ends with
its input, or with its parent.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from actors.processes import die_with_parent
from actors.training.data.documents import ReadingRules
from actors.training.data.files import SourceError
from actors.training.data.shards import shard_of, tokenize_shard
from actors.training.data.tokenizer import BytesTokenizer, FileTokenizer, Tokenizer


def setup_document(
    folder: Path, rules: ReadingRules, tokenizer_file: Path | None, end_of_document: str | None, dtype: str
) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "rules": asdict(rules),
        "tokenizer_file": str(tokenizer_file) if tokenizer_file else None,
        "end_of_document": end_of_document,
        "dtype": dtype,
    }


def load_tokenizer(tokenizer_file: str | None, end_of_document: str | None) -> Tokenizer:
    """A file, or bytes without one."""
    if tokenizer_file is None:
        return BytesTokenizer()
    return FileTokenizer(tokenizer_file, end_of_document=end_of_document, field="--tokenizer")


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    setup = json.loads(sys.stdin.readline())
    rules = ReadingRules(**setup["rules"])
    tokenizer = load_tokenizer(setup["tokenizer_file"], setup["end_of_document"])
    for line in sys.stdin:
        task = json.loads(line)
        try:
            tokenize_shard(
                Path(setup["folder"]),
                task["index"],
                shard_of(task["shard"]),
                rules,
                tokenizer,
                setup["dtype"],
            )
            answer = {}
        except SourceError as error:
            answer = {"error": str(error)}
        except OSError as error:  # of writing: what cannot be read is a SourceError
            answer = {"error": f"--out: {setup['folder']!r} cannot be written: {error.strerror or error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
