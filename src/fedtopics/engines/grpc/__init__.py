"""Server and clients on machines of their own: one port, one stream that the client opens.

``wire.proto`` says what travels; `values` turns plain data into bytes, `frames` messages into
frames; `server` keeps the members' lines, `clients` asks them in rounds; `client` answers.
"""

import os

# gRPC's C core prints what it thinks of each broken connection; ours is said in sentences.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
