"""Transports of messages: gRPC between machines, or calls in one process."""
