"""Server and clients on machines of their own: one port, one stream that the client opens.

`frames` sends messages in frames; `server` keeps the lines that `rounds` asks;
`client` connects, and answers from its desk.
"""

import os

# gRPC's C core prints what it thinks of each broken connection; ours is said in sentences.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
