"""Models of the Hugging Face formats: config.json, safetensors, tokenizer files, to and from a job's model."""
