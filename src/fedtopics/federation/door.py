"""The only exit from a client.

Every reply passes `Door.call`, which refuses what the client's policy forbids and writes a line to
its ledger before it hands the reply on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtopics.errors import DataError, PolicyError
from fedtopics.federation.ledger import Ledger, flat_fields
from fedtopics.federation.policy import Policy
from fedtopics.methods.aggregation import Payload
from fedtopics.methods.base import Moment
from fedtopics.methods.client import TopicClient


class Door:
    """Call a client's functions and let their replies out, if its policy allows."""

    def __init__(self, client: str, half: TopicClient[Any], policy: Policy, ledger: Ledger) -> None:
        policy.check_method(client, half.method)
        self.client = client
        self._half = half
        self._policy = policy
        self._ledger = ledger
        self._rounds = set(ledger.rounds)

    def call(self, function: str, payload: Payload, moment: Moment) -> dict[str, Any]:
        """Call a published function, check its reply, write it down, return it.

        Leaves the client
            The reply, and only if the policy allows it.

        Raises
        ------
        PolicyError
            If the function is not published or the policy forbids the reply.
        """
        if function not in self._half.published:
            raise PolicyError(f"Client {self.client!r} publishes no function {function!r}.")
        self._count_round(payload)
        self._half.attempt = moment.attempt
        try:
            reply: dict[str, Any] = getattr(self._half, function)(**payload)
        except DataError as error:
            raise DataError(f"Client {self.client!r}: {error}") from None
        self._check(function, reply)
        self._ledger.write(self.client, function, payload, reply)
        return reply

    def repeat(self, function: str, payload: Payload, moment: Moment) -> None:
        """Repeat a call that an earlier process answered, so that this one has the same state.

        Leaves the client
            Nothing.
        """
        self._count_round(payload)
        self._half.attempt = moment.attempt
        getattr(self._half, function)(**payload)

    def _count_round(self, payload: Payload) -> None:
        """Refuse one training round more than the policy allows, whatever its number.

        Rounds are counted, not compared: those of a model that goes on begin behind its own.
        """
        rounds = self._rounds | {payload.get("round", 0)} - {0}
        if len(rounds) > self._policy.max_rounds:
            raise PolicyError(
                f"The policy of client {self.client!r} allows {self._policy.max_rounds:,} rounds, "
                "and the server asks for one more; lower the study's max_rounds or raise that of "
                "the policy."
            )
        self._rounds = rounds

    def _check(self, function: str, reply: Payload) -> None:
        documents = reply.get("documents", 0)
        if documents == 0 and not any(np.any(value) for _, value in flat_fields(reply)):
            return  # it says no more than that there is nothing to say
        if documents < self._policy.min_documents:
            raise PolicyError(
                f"The reply to {function!r} of client {self.client!r} sums over {documents} "
                f"documents, its policy asks for {self._policy.min_documents}; give the client "
                "more documents, or lower min_documents in its policy."
            )
        rarest = np.min(reply.get("document_frequency", np.inf))
        if rarest < self._policy.min_document_frequency:
            raise PolicyError(
                f"The reply to {function!r} of client {self.client!r} names a word of {rarest} "
                f"documents, its policy asks for {self._policy.min_document_frequency}."
            )
