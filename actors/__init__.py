"""Acts: Ray actors and torch ranks that carry the orchestrator's decisions out and report facts."""
