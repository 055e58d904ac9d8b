"""The stores of the ledger. `memory` is the executable specification, `sqlite` the embedded default."""
