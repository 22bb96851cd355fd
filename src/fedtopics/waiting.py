"""How long anything waits: all times in seconds, each with what happens at its end.

Other modules read them as `waiting.NAME`. Those under "Settings" are defaults that a study or a
command line can change.
"""

DAY = 86_400.0  # seconds

# Settings

ROUND = 600.0  # A round with plain aggregation continues without the clients whose updates lack.
JOIN = DAY  # The server ends its wait for all clients before the first round.
QUORUM = 3600.0  # A round that still lacks its quorum ends the run, which can be resumed.
MEMBER = 7 * DAY  # `fedtopics join` gives up if it could not reach the server for so long.
RESIDENT_IDLE = 1800.0  # A process resident for Flower ends without messages; others may compute.

# Between members and server

CALL = 30.0  # A call fails, unless its bytes need longer at `transport.grpc.SLOWEST`.
ASK_HELD = 20.0  # The relay or server answers a member's `Ask` with nothing, less than a `CALL`.
AWAY = 45.0  # A member that did not call for so long counts as away: more than a held `Ask`.
FIRST_RETRY = 0.5  # After a first failed call, a member tries again; each wait doubles, until
LAST_RETRY = 10.0  # the longest wait between two tries.
NO_NEWS = 0.5  # After an answer that changed nothing, a member asks again.
CHECK_AWAY = 1.0  # The server looks again at who is away.
CHECK_DONE = 1.0  # The relay looks again at whether all members are done.
SAY_DONE = 60.0  # A member that has the model stops trying to tell the server.
HOST_STAYS = 600.0  # A member that hosts the relay stops serving the others when it has the model.
MODEL_FETCHED = 120.0  # A server that has ended stops waiting for clients to fetch the model.
ANSWERS_ON_THEIR_WAY = 0.5  # A stopping server cuts answers that are still being sent.
SERVER_STOPS = 5.0  # A stopping server ends whatever is left.
CHECK_DEADLINES = 0.1  # One thread looks again at which calls are late.
KEEPALIVE = 20.0  # gRPC pings a connection without traffic,
KEEPALIVE_ANSWER = 10.0  # and closes one whose ping has no answer.
PING_INTERVAL = 5.0  # gRPC's least time between two pings of the other side.
HANDSHAKE = 20.0  # gRPC ends a TLS handshake.
FIRST_CONNECT = 0.5  # gRPC tries to connect again; each wait grows, until
LAST_CONNECT = 5.0  # the longest wait between two tries.
ONE_CONNECT = 10.0  # gRPC ends one try to connect.

# Until people learn of it

UNSAID_WAIT = 5.0  # A member without a total says for whom the run waits.
UNSAID_WORK = 60.0  # A member says that others have been computing for so long.
NEXT_NOTICE = 600.0  # At most one such notice in this time.
UNSAVED = 60.0  # A run writes its events and a checkpoint at least this often.

# Other frameworks

CARRIED_REQUEST = (
    10.0  # A member of Flower or FLARE answers a request whose program still computes.
)
CARRIED_CALL = 3600.0  # A member's call fails if no request came to carry it.
CHECK_ADDRESSES = 1.0  # The server looks again at which members the framework reaches.
CARRIED_ANSWERS = 0.05  # The server looks again for answers.
FIRST_FAILED_MEMBER = 2.0  # The server asks a member that failed again; each wait doubles, until
LAST_FAILED_MEMBER = 60.0  # the longest wait between two tries.
LAST_RESULTS = 5.0  # A server that ends stops handing out last results.
RESIDENT_REACHED = 0.05  # A message for a resident process is tried again.
RESIDENT_ENDS = 5.0  # A process resident for Flower ends after its client has the model.
FIRST_PULL = 0.03  # The server asks Flower for answers; without any, each wait grows, until
LAST_PULL = 0.5  # the longest wait.
CHECK_FLARE = 1.0  # The server looks again at whether FLARE ended the job.
FLARE_SITE = 3600.0  # FLARE gives up an answer of a site.
FLARE_WORKER = 300.0  # FLARE gives up the start of a site's worker, which imports torch.
FLARE_LOGIN = 60.0  # An administrator's login fails; the server may have just started.
CHECK_DASK_WORKERS = 60.0  # The program looks again at whether Dask has any worker.
DASK_SCHEDULER = 30.0  # Dask's scheduler counts as unreachable.

# Texts

HUB = 10.0  # The Hugging Face hub counts as unreachable.
CACHE = 30.0  # A process stops waiting for another one that writes the cache of embeddings.
PATTERN = 1.0  # A user's pattern fails in a document.
