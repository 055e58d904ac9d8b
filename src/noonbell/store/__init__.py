"""Where the ledger lives. `memory` is the executable specification, `sqlite` the embedded default."""
