"""A client's door in masked sums: what the documents' door lets out leaves masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedtopics.engines import exchange
from fedtopics.errors import PolicyError
from fedtopics.methods.core.aggregation import SharedPayload
from fedtopics.methods.core.interfaces import Moment
from fedtopics.secure import said
from fedtopics.secure.check import digest
from fedtopics.secure.counting import Counting
from fedtopics.secure.field import Residues
from fedtopics.secure.fixed import FINE, Layout
from fedtopics.secure.keys import KeyPair, derive
from fedtopics.secure.masks import add_self_mask, mask, seeds_of_pairs
from fedtopics.secure.opening import Opening, Seeds, committed, own_seed
from fedtopics.secure.words import SUMS, Words

Reply = dict[str, Any]
WRITTEN = (  # signatures differ each time
    "values", "digest", "fits", "product", "own", "shares", "sealed", "same", "names", "length",
    "rows", "words", "exceeds",
)  # fmt: skip
LONG = "names", "rows", "words"  # parts that travel as arrays


class Door(exchange.Door, Protocol):
    """A door to documents that lets out what is made of its replies."""

    @property
    def sums(self) -> Mapping[tuple[int, str], list[str]]:
        """Over which clients sums were opened, by turn and function."""

    def leave(
        self, function: str, payload: Mapping[str, Any], moment: Moment, reply: Mapping[str, Any]
    ) -> None:
        """Write down what leaves, or raise if something else has left then."""

    def check_sum(self, documents: int) -> None:
        """Raise a `PolicyError` if a reply may not leave in a sum over so few documents."""


class MaskedDoor:
    """A client's door, and what it does in a masked sum.

    Parameters
    ----------
    door : Door
        That of the documents, with policy and ledger: what it lets out is masked here.
    name : str
        The client's.
    secret : bytes
        Of this client in this run; all its keys and masks follow from it.
    sign : function
        Signs by the key of the client's certificate.
    told_of : function
        Gets by how much numbers had to be made smaller, if they had to.
    """

    def __init__(
        self, door: Door, name: str, secret: bytes, sign: Callable[[bytes], bytes],
        told_of: Callable[[float], None] = lambda factor: None,
    ) -> None:  # fmt: skip
        self._door = door
        self._name = name
        self._secret = derive(secret, "masks")
        self._pair = KeyPair(derive(secret, "key of masks"))
        self._sign = sign
        self._told_of = told_of
        self._words = Counting(name, self._secret, self._pair)
        self._reply: Reply = {}
        self._round = 0
        self._asks = False  # whether a stage has asked the door of the documents
        self._masked: Residues | None = None
        self._fits = said.FITS
        self._sum: dict[str, Any] = {}  # which one is opened, and over whom
        self._stages: Mapping[str, Callable[..., Reply]] = {
            said.PREPARED: self._prepare, said.COMMITTED: self._commit, said.ADDED: self._add,
            said.OPENED: self._open, said.RECOVERED: self._recover,
            **{stage: partial(self._say_product, stage) for stage in (said.CHECKED, said.AGREED)},
            **{stage: partial(self._say_of_words, stage) for stage in said.WORD_STAGES},
        }  # fmt: skip

    @property
    def key(self) -> bytes:
        """The public key of this client's masks."""
        return self._pair.public

    def call(self, function: str, payload: Mapping[str, Any], moment: Moment) -> Reply:
        """Call a function, masked or not; see `federation.Door.call`."""
        if function not in self._stages:
            return self._door.call(function, payload, moment)
        self._asks, self._sum = False, {}
        reply = self._staged(self._door.call, function, payload, moment)
        if not self._asks:  # else the door of the documents has written down what it answered
            self._leave(function, getattr(payload, "digest", ""), moment, reply)
        return reply

    def _leave(self, function: str, digest: str, moment: Moment, reply: Reply) -> None:
        """Have it written down: a process after this one gives this answer, or none."""
        told = SharedPayload({"round": self._round, **self._sum})
        told.digest = digest
        parts = {**reply.get("said", {}), **reply.get("masked", {})}
        plain = {
            name: np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
            for name, part in parts.items()
            if name in WRITTEN
        }
        documents = self._reply.get("documents", 0)
        self._door.leave(function, told, moment, {"documents": documents, **plain})

    def repeat(self, function: str, payload: Mapping[str, Any], moment: Moment) -> Reply | None:
        """Do it again so that this client is where it was; nothing leaves."""
        if function not in self._stages:
            return self._door.repeat(function, payload, moment)
        return self._staged(self._door.repeat, function, payload, moment)

    def _staged(
        self, answer: Callable[..., Any], function: str, payload: Mapping[str, Any], moment: Moment
    ) -> Reply:
        asked = getattr(payload, "digest", "")
        return self._stages[function](partial(self._asked, answer, asked, moment), **payload)

    def _asked(
        self, answer: Callable[..., Any], digest: str, moment: Moment, function: str,
        payload: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Ask the door of the documents, once for a sum."""
        asked = SharedPayload(payload)
        asked.digest, asked.masked = digest, True
        if function in SUMS:
            self._reply = self._words.reply(function, payload["words"])
        else:
            self._asks, self._round = True, payload.get("round", 0)
            self._reply = answer(function, asked, moment)
        self._moment = moment.turn, function

    # Stages of a sum

    def _commit(
        self, ask: Callable[..., None], *, context: bytes, seed: bytes, called: str,
        payload: Mapping[str, Any], known: bool, keys: Mapping[str, bytes], layout: Layout,
    ) -> Reply:  # fmt: skip
        """Mask a reply; say what it is, by its digest, if it fits, and what the last one was."""
        last = _product(seed, self._masked)
        if not known:
            ask(called, payload)
        values = self._encoded(layout)
        mask(values, self._name, seeds_of_pairs(self._name, self._pair, keys, context))
        self._masked = values
        return self._signed(
            said.COMMITTED, context, digest=digest(values, context), fits=self._fits,
            documents=said.count(self._reply), **last,
        )  # fmt: skip

    def _prepare(
        self, ask: Callable[..., None], *, context: bytes, seed: bytes, called: str,
        payload: Mapping[str, Any], keys: Mapping[str, bytes], layout: Layout, number: int,
    ) -> Reply:  # fmt: skip
        """Draw the masks of a sum; give each other client what can open them, if it has to."""
        ask(called, payload)
        self._moment = self._moment[0], f"{called} {number}"  # in a round it may be called again
        self._encoded(layout)
        self._keys, self._seeds = keys, Seeds.of(self._secret, context)
        shares = self._seeds.sealed(self._name, self._pair, keys, context)
        return self._signed(
            said.PREPARED, context, key=self._seeds.key.public, own=committed(self._seeds.own),
            shares=shares, fits=self._fits, documents=said.count(self._reply),
        )  # fmt: skip

    def _add(
        self, ask: Callable[..., None], *, context: bytes, documents: int,
        there: Sequence[str] = (), prepared: Mapping[str, Mapping[str, bytes]] | None = None,
        layout: Layout | None = None,
    ) -> Reply:  # fmt: skip
        """Give the masked reply, if the sum is over enough documents."""
        self._door.check_sum(documents)
        if prepared is None or layout is None:
            return {"masked": {"values": self._masked}}
        values = self._encoded(layout)
        keys = {n: prepared[n]["key"] for n in there}
        mask(values, self._name, seeds_of_pairs(self._name, self._seeds.key, keys, context))
        add_self_mask(values, own_seed(self._seeds.own))
        self._masked = values
        signed = self._signed(said.ADDED, context, digest=digest(values, context))
        return {"masked": {"values": values, **signed}}

    def _say_product(
        self, stage: str, ask: Callable[..., None], *, context: bytes, seed: bytes,
        documents: int | None = None,
    ) -> Reply:  # fmt: skip
        """Say what the masked reply was; by the signature also that this client knows the total.

        Where the sum is to be opened then, it is not if it has become one over too few documents.
        """
        if documents is not None:
            self._door.check_sum(documents)
        return self._signed(stage, context, **_product(seed, self._masked))

    def _open(
        self, ask: Callable[..., None], *, context: bytes, seed: bytes, opening: Opening
    ) -> Reply:
        """Tell the own mask, and shares of what others had in common with who is lost."""
        turn, called = self._moment
        counted, before = list(opening.counted), self._door.sums.get((turn, called))
        if before not in (None, counted):
            raise PolicyError(
                f"Client {self._name!r} was in a sum of {called!r} over {', '.join(before)}, "
                f"and is asked for the same one over {', '.join(counted)}: the difference would "
                "tell what one of them sent. Begin a new run."
            )
        self._sum = {"called": called, "counted": counted}
        shares = opening.shares(opening.lost, self._name, self._pair, self._keys)
        return self._signed(said.OPENED, context, own=self._seeds.own, shares=shares)

    def _recover(
        self, ask: Callable[..., None], *, context: bytes, seed: bytes, opening: Opening
    ) -> Reply:
        """Tell shares of the own masks of who is in the sum, and was lost since."""
        shares = opening.shares(opening.silent, self._name, self._pair, self._keys)
        return self._signed(said.RECOVERED, context, shares=shares)

    def _say_of_words(
        self, stage: str, ask: Callable[..., None], *, context: bytes, seed: bytes, words: Words,
        called: str = "", payload: Mapping[str, Any] | None = None,
    ) -> Reply:  # fmt: skip
        """Say what the clients need to agree on words."""
        if payload is not None:
            ask(called, payload)
            self._words.documents = self._reply
        signed = self._signed(stage, context, **self._words.answer(stage, words, context))["said"]
        arrays = {n: np.frombuffer(signed[n], np.uint8) for n in LONG if n in signed}
        return {"said": signed | arrays}

    def _encoded(self, layout: Layout) -> Residues:
        values, factor = layout.encode(self._reply)
        self._fits = said.FITS if factor == 1 else said.EXCEEDS
        if factor < 1 and layout.fraction < FINE:  # it leaves like this
            self._told_of(factor)
        return values

    def _signed(self, stage: str, context: bytes, **parts: bytes) -> Reply:
        signature = self._sign(said.statement(stage, context, parts))
        return {"said": {**parts, "signature": signature}}

    # Between machines

    def check_members(self, members: Sequence[str]) -> None:
        """Refuse to be added up with so few clients."""
        self._door.check_members(members)

    def is_past(self, moment: Moment) -> bool:
        """Whether a later moment was answered, by this process or one before."""
        return self._door.is_past(moment)

    def came(self, function: str, moment: Moment, digest: bytes, size: int) -> None:
        """Write down what came for a call."""
        self._door.came(function, moment, digest, size)


def _product(seed: bytes, masked: Residues | None) -> dict[str, bytes]:
    """Return what tells that a total is the sum, if there is one."""
    return {"product": said.product_of(seed, masked)} if seed and masked is not None else {}
