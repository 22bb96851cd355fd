"""The only exit from a client.

Every reply passes `Door.call`, which refuses what the client's policy forbids, such as a sum over
too few documents, and writes a line to its ledger first. `core.groups` checks groups in a reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedtopics.errors import DataError, PolicyError
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import Policy
from fedtopics.methods.core.aggregation import Named, Payload, digest_of, flat_fields
from fedtopics.methods.core.client import TopicClient
from fedtopics.methods.core.interfaces import Call, Position
from fedtopics.text.words import LONGEST_WORD, is_word


class Door:
    """Call a client's functions and let their replies out, if its policy allows."""

    def __init__(
        self, client: str, client_side: TopicClient[Any], policy: Policy, ledger: Ledger
    ) -> None:
        policy.check_method(client, client_side.method)
        self.client = client
        self._client = client_side
        self._policy = policy
        self._ledger = ledger
        self._rounds = set(ledger.rounds)

    @property
    def turn(self) -> int:
        """The last turn that was answered, in this process or before; 0 for none."""
        return self._ledger.last.position.turn

    def call(self, call: Call) -> dict[str, Any]:
        """Call a published function, check its reply, write it down, return it.

        Positions grow. The last one is answered again, with the same bytes, if it is the same call
        and there is a ledger to tell by. PolicyError if the function is not published, the position
        is past or the policy forbids the reply.
        """
        self._admit(call)
        reply = self.repeat(call)
        self._let_out(call, reply)
        return reply

    def _admit(self, call: Call) -> None:
        """Refuse what is not in the study, or not now."""
        if call.function not in self._client.published:
            raise PolicyError(f"Client {self.client!r} publishes no function {call.function!r}.")
        self._check_position(call)
        self._check_question(call)
        self._count_round(call)

    def _let_out(self, call: Call, reply: Payload) -> None:
        self._check(call.function, reply)
        # What is different in two replies with the same noise would be there without any.
        noted: dict[str, Any] = {"once": self._client.noisy, "summed": self._client.summed or None}
        if self._client.noisy:
            noted["question"] = _question(call)
        self._write(call, reply, **noted)

    def _write(self, call: Call, reply: Payload, **noted: Any) -> None:
        if not self._ledger.write(self.client, call, reply, **noted):
            raise PolicyError(
                f"{self._describe_answer(call.function, call.position)}, and the reply would be "
                "another one now; the documents or the client's secret have changed. Restore them."
            )

    def leave(self, call: Call, reply: Payload) -> None:
        """Let out what was made of replies that have passed `call`, once at a position."""
        self._check_position(call)
        self._write(call, reply)

    def repeat(self, call: Call) -> dict[str, Any]:
        """Execute a function for the state that it leaves; its reply does not leave by this."""
        self._client.attempt = call.position.attempt
        try:
            reply: dict[str, Any] = self._client.function(call.function)(**call.payload)
        except DataError as error:
            raise DataError(f"Client {self.client!r}: {error}") from None
        return reply

    def check_members(self, members: Sequence[str]) -> None:
        """Refuse to be added up with so few clients; see `Policy.check_members`."""
        self._policy.check_members(self.client, members)

    def check_sum(self, documents: int) -> None:
        """Refuse a secure sum over so few documents; see `Policy.check_sum`."""
        self._policy.check_sum(self.client, documents)

    def write_total(self, function: str, position: Position, digest: bytes, size: int) -> None:
        """Write down what came for a call: the digest of it and all before, and its bytes."""
        self._ledger.write_total(position, function, digest.hex(), size)

    def _check_position(self, call: Call) -> None:
        last, function, position = self._ledger.last, call.function, call.position
        digest = call.digest if self._ledger.is_kept else ""
        again = position == last.position and digest and (last.function, last.payload) == (
            function, digest,
        )  # fmt: skip
        if position <= last.position and not again:
            raise PolicyError(
                f"{self._describe_answer(last.function, last.position)}, and is asked for "
                f"{function!r} of turn {position.turn}, attempt {position.attempt}, exchange "
                f"{position.exchange} now, which is past; a run does not go back. Look into what "
                "the others run."
            )

    def _check_question(self, call: Call) -> None:
        """Refuse a sum with noise that was asked for in another way, also by a process before.

        It would have the same noise, over other clients or of other vectors of the same documents.
        """
        if not self._client.noisy:
            return
        release, how = _question(call)
        if self._ledger.questions.get(release, how) != how:
            raise PolicyError(
                f"Client {self.client!r} is asked for {call.function!r} as it was not before in "
                "this run; its sums have one noise, and the difference would have none. Nothing "
                "has left; look into what the others run."
            )

    def _describe_answer(self, function: str, position: Position) -> str:
        return (
            f"Client {self.client!r} answered {function!r} of turn {position.turn}, attempt "
            f"{position.attempt}, exchange {position.exchange}"
        )

    def _count_round(self, call: Call) -> None:
        """Refuse one training round more than the policy allows, whatever its number.

        Rounds are counted, not compared: those of a model that goes on begin behind its own. A
        round that is worked again counts again, as it tells as much.
        """
        round_ = self._ledger.run, call.payload.get("round", 0), call.position.attempt
        if not round_[1] or round_ in self._rounds:
            return
        if len(self._rounds) >= self._policy.max_rounds:
            raise PolicyError(
                f"The policy of client {self.client!r} allows {self._policy.max_rounds:,} rounds, "
                "and this would be one more; lower the study's max_rounds or raise that of the "
                "policy."
            )
        self._rounds.add(round_)

    def _check(self, function: str, reply: Payload) -> None:
        documents = reply.get("documents", self._client.summed)
        if documents == 0 and not any(np.any(value) for _, value in flat_fields(reply)):
            return  # it says no more than that there is nothing to say
        what = f"The reply to {function!r} of client {self.client!r}"
        if documents < self._policy.min_documents:
            raise PolicyError(
                f"{what} sums over {documents} documents, its policy asks for "
                f"{self._policy.min_documents}; give the client more documents, or lower "
                "min_documents in its policy."
            )
        for name, value in flat_fields(reply):
            texts = value if isinstance(value, list) else [value]
            if not all(is_word(text) for text in texts if isinstance(text, str)):
                raise PolicyError(
                    f"{what} has a word in {name!r} of more than {LONGEST_WORD} characters, or "
                    "with one that does not print; such words do not leave."
                )
        rarest = min((_rarest(value) for value in reply.values()), default=np.inf)
        if rarest < self._policy.min_document_frequency:
            raise PolicyError(
                f"{what} names a word of {rarest} documents, its policy asks for "
                f"{self._policy.min_document_frequency}."
            )


class AtOnce:
    """Sums over clients of a simulation, computed at once: each policy holds, no ledger is kept."""

    def __init__(self, doors: Mapping[str, Door]) -> None:
        self._doors = doors
        self._round: tuple[Sequence[str], Any] = ([], None)  # who is in it, what computes

    def sum(self, names: Sequence[str], call: Call) -> dict[str, Any] | None:
        """Return the sum of these clients' replies, or None where each one has to be computed."""
        doors = [self._doors[name] for name in names]
        if self._round[0] != names:
            of = doors[0]._client.together
            self._round = names, of and of([door._client for door in doors])
        together = self._round[1]
        if together is None or call.function not in together.functions:
            return None
        for door in doors:
            door._admit(call)
            door._client.attempt = call.position.attempt
        total: dict[str, Any] = getattr(together, call.function)(**call.payload)
        for door, documents in zip(doors, together.documents, strict=True):
            door._let_out(call, {"documents": documents})
        return total


def _question(call: Call) -> tuple[str, str]:
    """Return which sum with noise is asked for, and in what way; of a hidden one in which turn."""
    turn = call.position.turn if call.hidden else 0
    return f"{call.function} {call.payload.get('number', 1)}", f"{turn} {digest_of(call.payload)}"


def _rarest(value: Any) -> float:
    """Return in how many documents the rarest word is that a value names."""
    if isinstance(value, Mapping):
        return min(map(_rarest, value.values()), default=np.inf)
    names_words = isinstance(value, Named) and len(value.names)
    return value.values[:, 0].min() if names_words else np.inf
