"""Pages for people: the dashboard, the first admin, login and logout. Needs the extra `server`.

The service renders every page, and pages work without scripts; scripts add live updates. The pages call the same
library interfaces as the API, on behalf of the user who is logged in, and never the API itself.
"""
