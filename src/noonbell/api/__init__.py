"""The REST API: FastAPI over the faces of a service. Import it only where the extra `server` is installed."""
