"""Engines carry what participants say to each other; they know no topics.

`local` has all clients in one process. Between machines each participant has a `node` over a
`transport`, its program an `exchange`, and who adds an `adder`; `replica` keeps their decisions
the same everywhere. `grpc` is our transport; `carried` and `answering` are the two ends of one over
what carries a message and its answer: Flower, FLARE. `messages` says which messages there are,
`values` turns plain data into bytes.
"""
