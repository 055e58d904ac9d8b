"""The routes, one module for each thing; `api/app.py` names them all."""
