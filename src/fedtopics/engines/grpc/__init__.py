"""Server and clients on separate machines: one port, one stream that the client opens.

`frames` sends messages in frames. `server` listens, `admission` shakes hands, `roster` calls the
members; `client` connects and answers.
"""

import os

# gRPC's C core prints what it thinks of each broken connection; ours is said in sentences.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
