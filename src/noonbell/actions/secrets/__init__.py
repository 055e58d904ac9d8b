"""Secrets: sealed at rest, named in requests as `${secrets.NAME}`, masked in everything that is written down.

    keys        master keys, in versions, from a file or a variable
    records     a sealed secret, and what the store has to do with it
    book        putting, removing, using and rotating the secrets of a store
    vault       sealing, opening, rewrapping: needs the package `cryptography`
    references  `${secrets.NAME}` in URL, headers and body
    masking     takes the values out of text, bytes, structures, errors and log lines
    forms       the ways in which a value may be written
    finding     looks for those of many values in one pass
    logs        masking for the standard library's logging

Nothing is imported here, so that reading a reference does not load the cipher.
"""
