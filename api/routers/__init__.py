"""Routes, thin: parameters in, one call of the orchestrator or the store, a body out."""
