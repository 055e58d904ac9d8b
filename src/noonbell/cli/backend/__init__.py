"""The one seam between commands and what they work on: a database that is opened here, or a server that is asked.

`protocol` says what a command may ask. `local` answers from a store, with the faces of the library; `remote` answers
with the same records, which it reads from the REST API. A command does not know which of the two it has, so its output
is the same. Neither is loaded before it is needed.
"""
