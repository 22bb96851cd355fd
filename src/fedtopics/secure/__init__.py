"""Sums of what nobody sees one by one: keys, masks, shares and the check of totals.

docs/secure-aggregation.md is the specification, with test vectors. All cryptography is that of
`cryptography` and, for shares, of pycryptodome; what is here puts it together.
"""
