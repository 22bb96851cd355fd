"""The protocol between machines: a step needs every member; see docs/reference/protocol.md."""
