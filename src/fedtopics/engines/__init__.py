"""Engines carry a method's calls to its clients and the replies back; they know no topics.

`local` has all clients in one process. Between machines, `rounds` calls clients over an engine's
`connections`, and a client's `call_handler` answers. `grpc` is our engine between machines; where
another program carries whole messages, `message_server` and `message_client` are the two ends.
``wire.proto`` says what is sent, `values` turns plain data into bytes.
"""
