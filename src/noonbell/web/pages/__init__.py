"""The pages of the dashboard, one module for each; `web/app.py` lists their routers."""
