"""Pages for people: the dashboard, the first admin, login and logout. Needs the extra `server`.

Everything is rendered by the service and can be read without a script; scripts make it live. The pages call the same
faces as the API, in the name of whoever is logged in, and never the API itself.
"""
