"""Server and clients on separate machines: one port, one stream that the client opens.

`transport` listens and connects, `connection` is one stream, `frames` cuts messages into frames.
"""

import logging
import os

# gRPC's C core prints what it thinks of each broken connection; ours is said in sentences.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether something logged is not of a stream that both sides ended at the same moment."""
    return not record.getMessage().startswith("ExecuteBatchError raised in core")


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_ours)
