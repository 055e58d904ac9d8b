"""The backends of commands: a database that is opened here, or a server that is called over its REST API.

`protocol` defines the interface. `local` works on a store, with the interfaces of the library; `remote` returns the
same records, read from the REST API. A command does not know which of the two it uses, so its output is the same. Each
is imported only when it is needed.
"""
