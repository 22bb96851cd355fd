"""Engines carry a method's calls to its clients and the replies back; they know no topics.

`local` has all clients in one process. Between machines, `rounds` asks clients over an engine's
`Lines`, and a `desk` answers: `grpc` is our own; where another program carries whole messages,
`messages` and `answering` are the two ends. ``wire.proto`` says what travels, `values` turns plain
data into bytes.
"""
