"""Text to batches: source, tokenizer, corpus, order."""
