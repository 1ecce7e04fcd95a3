"""Who may speak to this server."""
