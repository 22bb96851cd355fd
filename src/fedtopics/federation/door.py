"""The outbound filter (Door): checks each reply against the policy and records it before sending.

Look here for what a client refuses to send during a run; `policy` has the checks before it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedtopics.contract.interfaces import Call, Position
from fedtopics.contract.payload import CountsByWord, Payload, digest_of, flat_fields
from fedtopics.errors import DataError, PolicyError
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.methods.core.client import TopicClient
from fedtopics.text.words import LONGEST_WORD, is_word


class Door:
    """Calls a client's functions, and releases only replies that the policy allows."""

    def __init__(
        self, client: str, client_side: TopicClient[Any], policy: Policy, ledger: Ledger
    ) -> None:
        policy.check_method(client, client_side.method)
        self.client = client
        self._client = client_side
        self._policy = policy
        self._ledger = ledger
        self._rounds = set(ledger.rounds)
        self._released = 0.0  # share of the privacy budget that this process has used

    @property
    def turn(self) -> int:
        """The last turn that was answered, also by earlier processes; 0 for none."""
        return self._ledger.last.position.turn

    def call(self, call: Call) -> dict[str, Any]:
        """Call a function; check, record, return its reply. A repeated call has the same reply."""
        self._admit(call)
        reply = self.repeat(call)
        self._let_out(call, reply)
        return reply

    def _admit(self, call: Call) -> None:
        if call.function not in self._client.allowed:
            raise PolicyError(f"Client {self.client!r} publishes no function {call.function!r}.")
        self._check_position(call)
        self._check_question(call)
        self._count_round(call)

    def _let_out(self, call: Call, reply: Payload) -> None:
        self._check(call.function, reply)
        # The difference of two replies with the same noise would have no noise.
        notes: dict[str, Any] = {"once": self._client.noisy, "summed": self._client.summed or None}
        if self._client.noisy:
            released = self._client.released
            notes["question"] = (*_question(call), released - self._released)
            self._released = released
        self._write(call, reply, **notes)

    def _write(self, call: Call, reply: Payload, **notes: Any) -> None:
        if not self._ledger.write_reply(
            self.client, call, reply, persons=self._client.persons, **notes
        ):
            raise PolicyError(
                f"{self._describe_answer(call.function, call.position)}, and the reply would be "
                "different now, as the documents or the client's secret have changed. Nothing was "
                "sent; restore the documents and the run folder."
            )

    def leave(self, call: Call, reply: Payload) -> None:
        """Release a value computed from replies that passed `call`, once per position."""
        self._check_position(call)
        self._write(call, reply)

    def repeat(self, call: Call) -> dict[str, Any]:
        """Execute a function for its effect on the client's state; its reply is not sent."""
        self._client.attempt = call.position.attempt
        try:
            return self._client.execute(call.function, call.payload)
        except DataError as error:
            raise DataError(f"Client {self.client!r}: {error}") from None

    def count_words(self, most: int) -> int:
        """Return how many words the client proposes, at most so many; nothing is sent."""
        return len(self._client.proposed(0, most, self._client.counted_words())["words"].names)

    def check_members(self, members: Sequence[str]) -> None:
        self._policy.check_members(self.client, members)

    def check_sum(self, persons: int) -> None:
        self._policy.check_sum(self.client, persons)

    def write_total(self, function: str, position: Position, digest: bytes, size: int) -> None:
        self._ledger.write_total(position, function, digest.hex(), size)

    def _check_position(self, call: Call) -> None:
        last = self._ledger.last
        position = call.position
        # A process that was interrupted before the reply was sent repeats the calls of a step.
        sent = self._ledger.sent.get(position)
        is_repeat = sent and (sent.function, sent.payload) == (call.function, call.digest)
        if position <= last.position and not is_repeat:
            raise PolicyError(
                f"{self._describe_answer(last.function, last.position)}, and now gets a call of "
                f"{call.function!r} of turn {position.turn}, attempt {position.attempt}, exchange "
                f"{position.exchange}, which was earlier. Nothing was sent; check which programs "
                "and run folders the others use."
            )

    def _check_question(self, call: Call) -> None:
        """Refuse a different request for the same noisy sum, which would reuse the noise."""
        if not self._client.noisy:
            return
        release, how = _question(call)
        if self._ledger.questions.get(release, how) != how:
            raise PolicyError(
                f"Client {self.client!r} got a different call of {call.function!r} than before in "
                "this run. Both sums would have the same noise, so their difference would have "
                "none. Nothing was sent; check which programs and run folders the others use."
            )

    def _describe_answer(self, function: str, position: Position) -> str:
        return (
            f"Client {self.client!r} answered {function!r} of turn {position.turn}, attempt "
            f"{position.attempt}, exchange {position.exchange}"
        )

    def _count_round(self, call: Call) -> None:
        """Refuse more rounds than the policy allows; a repeated round counts again.

        Round numbers do not count, because those of a continued model start after its own.
        """
        number = call.payload.get("round", 0)
        round_ = self._ledger.run, number, call.position.attempt
        if not number or round_ in self._rounds:
            return
        most = self._policy.max_rounds or self._client.most_rounds
        if most is not None and len(self._rounds) >= most:
            raise PolicyError(
                f"The policy of client {self.client!r} allows {most:,} rounds, and this would be "
                "one more; lower the study's max_rounds."
            )
        self._rounds.add(round_)

    def _check(self, function: str, reply: Payload) -> None:
        documents = reply.get("documents", self._client.summed)
        persons = documents if self._client.persons is None else self._client.persons
        if documents == 0 and not any(np.any(value) for _, value in flat_fields(reply)):
            return  # an empty reply reveals nothing
        what = f"The reply to {function!r} of client {self.client!r}"
        if persons < self._policy.min_persons:
            raise PolicyError(
                f"{what} sums over documents of {persons} persons, but its policy requires "
                f"{self._policy.min_persons}; give the client documents of more persons."
            )
        for name, value in flat_fields(reply):
            texts = value if isinstance(value, list) else [value]
            if not all(is_word(text) for text in texts if isinstance(text, str)):
                raise PolicyError(
                    f"{what} has a word in {name!r} with more than {LONGEST_WORD} characters, or "
                    "with a character that does not print. Nothing was sent; correct the words."
                )
        rarest = _rarest(reply)
        if rarest < self._policy.min_persons_per_word:
            raise PolicyError(
                f"{what} names a word of {rarest} documents, but its policy requires "
                f"{self._policy.min_persons_per_word}."
            )


def sums_at_once(
    doors: Mapping[str, Door],
) -> Callable[[Sequence[str], Call], dict[str, Any] | None]:
    """Return a function that sums over these clients of a simulation at once, without a ledger.

    Policies apply. It returns None if each client's reply must be computed separately.
    """

    @lru_cache(maxsize=1)  # all calls of a round are to the same clients
    def joined(*names: str) -> Any:
        clients = [doors[name]._client for name in names]
        return clients[0].together and clients[0].together(clients)

    def summed(names: Sequence[str], call: Call) -> dict[str, Any] | None:
        together = joined(*names)
        if together is None or call.function not in together.functions:
            return None
        payload: dict[str, Any] = {}
        for door in (doors[name] for name in names):
            door._admit(call)
            door._client.attempt = call.position.attempt
            payload = door._client.checked(call.function, call.payload)
        total: dict[str, Any] = getattr(together, call.function)(**payload)
        for name, documents in zip(names, together.documents, strict=True):
            doors[name]._let_out(call, {"documents": documents})
        return total

    return summed


def _question(call: Call) -> tuple[str, str]:
    """Return the name of a requested noisy sum, and a digest of how it was requested."""
    turn = call.position.turn if call.hidden else 0
    return f"{call.function} {call.payload.get('number', 1)}", f"{turn} {digest_of(call.payload)}"


def _rarest(value: Any) -> float:
    if isinstance(value, Mapping):
        return min(map(_rarest, value.values()), default=np.inf)
    names_words = isinstance(value, CountsByWord) and len(value.names)
    return value.values[:, 0].min() if names_words else np.inf
