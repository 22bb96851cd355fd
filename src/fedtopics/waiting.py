"""How long anything waits: all times in seconds, each with what happens at its end.

Other modules read them as `waiting.NAME`. Those under "Settings" are defaults that a study or a
command line can change.
"""

DAY = 86_400.0  # seconds

# Settings

ROUND = 600.0  # A round with plain aggregation continues without clients that sent no update.
JOIN = DAY  # The server ends its wait for all clients before the first round.
QUORUM = 3600.0  # A round that still lacks its quorum ends the run, which can be resumed.
MEMBER = 7 * DAY  # `fedtopics join` gives up if it could not reach the server for so long.
RESIDENT_IDLE = 1800.0  # Without messages, a process resident for Flower ends.

# Between members and server

CALL = 30.0  # A call fails, unless its bytes need longer at `transport.grpc.SLOWEST`.
ASK_HELD = 20.0  # The relay or server answers a waiting `Ask` with nothing; shorter than `CALL`.
AWAY = 45.0  # A member that did not call for so long counts as away: more than a held `Ask`.
ENDED_SERVER = 60.0  # A member that had the model stops calling a server that may have ended.
FIRST_RETRY = 0.5  # After a first failed call, a member tries again; each further wait doubles.
LAST_RETRY = 10.0  # The longest wait between two tries of a member.
NO_NEWS = 0.5  # After an answer that changed nothing, a member asks again.
CHECK = 1.0  # A server looks again at who is away, done or reached, and at whether a job has ended.
SAY_DONE = 60.0  # A member that has the model stops trying to tell the server.
HOST_STAYS = 600.0  # A member that hosts the relay and has the model stops waiting for the others.
MODEL_FETCHED = 120.0  # A server that has ended stops waiting for clients to fetch the model.
ANSWERS_ON_THEIR_WAY = 0.5  # A stopping server cuts answers that are still being sent.
SERVER_STOPS = 5.0  # The program stops waiting for a stopping server.
CHECK_DEADLINES = 0.1  # One thread looks again at which calls are late.
KEEPALIVE = 20.0  # After so long without traffic, gRPC pings a connection.
KEEPALIVE_ANSWER = 10.0  # gRPC closes a connection whose ping has no answer.
PING_INTERVAL = 5.0  # gRPC's least time between two pings of the other side.
HANDSHAKE = 10.0  # gRPC ends a TLS handshake, as the other side does after `ONE_CONNECT`.
FIRST_CONNECT = 0.5  # After a first failure, gRPC tries to connect again; each further wait grows.
LAST_CONNECT = 5.0  # The longest wait between two tries of gRPC.
ONE_CONNECT = 10.0  # gRPC ends one try to connect.

NEXT_TURN = 2.0  # A relay over folders looks again for files, and a member for approvals.

# Until people learn of it

HEARTBEAT = 2.0  # A process touches the lock of its run's folder again.
SILENT = 20.0  # A process that has not done so counts as frozen.
UNSAID_WAIT = 5.0  # A member without a total says for whom the run waits.
UNSAID_WORK = 60.0  # A member says that others have been computing for so long.
NEXT_NOTICE = 600.0  # The longest time between two such notices; it grows from `UNSAID_WAIT`.
QUIET = 10.0  # Without an event, `fedtopics status` shows no time left.
UNSAVED = 60.0  # After a round, a checkpoint is due if the last one is older.

# Other frameworks

CARRIED_REQUEST = 10.0  # A member of Flower or FLARE answers, even if its program still computes.
CARRIED_CALL = 3600.0  # A member's call fails if no request came to carry it.
CARRIED_ANSWERS = 0.05  # The server looks again for answers.
FIRST_FAILED_MEMBER = 2.0  # The server asks a member that failed again; each further wait doubles.
LAST_FAILED_MEMBER = 60.0  # The longest wait between two tries to reach that member.
LAST_RESULTS = 5.0  # A server that ends stops handing out last results.
RESIDENT_REACHED = 0.05  # While a resident process starts, its caller tries again to connect.
RESIDENT_ENDS = 5.0  # A process resident for Flower ends after its client has the model.
FIRST_PULL = 0.03  # The server asks Flower for answers; without any, each further wait grows.
LAST_PULL = 0.5  # The longest wait between two such questions.
FLARE_SITE = 3600.0  # FLARE gives up an answer of a site.
FLARE_WORKER = 300.0  # FLARE gives up the start of a site's worker, which imports torch.
FLARE_LOGIN = 60.0  # An administrator's login fails; the server may have just started.
CHECK_DASK_WORKERS = 60.0  # The program looks again at whether Dask has any worker.
DASK_SCHEDULER = 30.0  # Dask's scheduler counts as unreachable.

# Texts

READ = 3600.0  # The reading of a file of another program, or a query, is given up.
HUB = 10.0  # The Hugging Face hub counts as unreachable.
CACHE = 30.0  # A process stops waiting for another one that writes the cache of embeddings.
PATTERN = 1.0  # A user's pattern fails in a document.
