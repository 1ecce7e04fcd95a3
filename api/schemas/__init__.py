"""Bodies of requests and answers: what OpenAPI shows and the web UI is typed by."""
