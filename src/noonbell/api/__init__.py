"""The REST API: FastAPI over the interfaces of a service. Import it only where the extra `server` is installed."""
