"""How messages travel: over gRPC between machines, or by calls in one process.

A transport knows bytes and names. It checks by certificates who calls, and nothing else.
"""
