"""The REST API: FastAPI routers, thin, over the orchestrator and SQL. No Ray in this process."""
