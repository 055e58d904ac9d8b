"""The models of the API's requests and responses: one module for each kind of resource.

Requests are strict (no text in place of a number, no unknown field), and each field is validated by itself. The
library checks whether the fields make sense together; its errors are returned in the same format.
"""
