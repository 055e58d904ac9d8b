"""What the API takes and gives, as models: one module for each kind of thing.

What is given is strict (no text where a number belongs, no field that is not known), and says what a single field may
be. Whether fields make sense together is for the library, whose complaints come back in the same shape.
"""
