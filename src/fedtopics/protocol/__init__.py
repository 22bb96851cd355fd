"""The protocol between machines: everyone contributes to a step, or there is no step.

`keys` and `masks` are the cryptography, `messages` what travels. `member` and `relay` are the two
state machines, `record` what a member keeps on disk. `clients` lets a method's program run over a
member. `plain` is the aggregation with a trusted server. See docs/reference/protocol.md.
"""
