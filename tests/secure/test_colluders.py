"""What who adds and a client learn together: what docs/secure-aggregation.md says they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from fedtopics.engines.exchange import ADDED as DECIDED
from fedtopics.engines.handshake import Introduction
from fedtopics.engines.messages import Reply
from fedtopics.methods.core.aggregation import Payload
from fedtopics.methods.core.interfaces import Moment
from fedtopics.secure.fixed import FINE, Layout
from fedtopics.secure.masks import remove_self_mask, seeds_of_pairs
from fedtopics.secure.opening import Opening, own_seed, pair_key
from fedtopics.secure.said import ADDED, AGREED, PREPARED, Total, context_of
from fedtopics.secure.shares import SECRET, combine
from tests.helpers.masked import NAMES, TEMPLATE, Clients, half_of, reply_of
from tests.helpers.masked_adder import Adder, masked_total
from tests.helpers.programs import PROPOSAL, RUN, door

REAL = "abde"
SHARE = SECRET + 32


def test_one_friend_and_two_lists_of_who_was_lost(clients: Clients) -> None:
    """Of five, one that signs both lists opens both seeds of a client: a and b are told that d and
    e are lost, d and e that a and b are. All that they see fits, so nothing can be refused."""
    liar = Adder(clients, *REAL)
    friend = clients.wrap("c")(door("c", half_of("c")))
    proposed = replace(PROPOSAL, study={"clients": list(NAMES)})
    signs = Introduction("c", proposed, RUN, clients.identities["c"], key=friend.key)
    sign = cache(signs.sign_digest)  # another one each time
    for name in REAL:
        clients.start(name, "whole")
    keys: dict[str, bytes] = {}

    def with_the_friends(begun: Any) -> None:
        begun["keys"]["c"] = signs.keys("c")["c"]
        keys.update({name: key[:32] for name, key in begun["keys"].items()})

    liar.joined(*REAL)
    liar.start(*REAL, members=list(NAMES), change=with_the_friends)
    context = context_of(liar.logs["a"].digest(1), "whole", NAMES)

    def tell(own: Mapping[str, Payload], lists: Mapping[str, str], add_up: bool) -> dict[str, Any]:
        """Take the answers, and tell each what it comes to over the list that it is told."""
        said = {name: liar.hear(name, Reply) for name in REAL}
        for name in REAL:
            log, counted = liar.logs[name], lists[name]
            index = log.last + 1
            replies = {n: own[counted] if n == "c" else said[n].reply for n in counted}
            signed = {n: said[n].signature for n in counted if n != "c"}
            signed["c"] = sign(index, log.digest(index - 1))
            found = {"total": {"masked": masked_total(replies)}} if add_up else {"replies": replies}
            lost = dict.fromkeys(set(NAMES) - set(counted) if add_up else (), "it was lost")
            content = {"index": index, "missing": lost, "again": False, "signatures": signed}
            liar.decide(name, DECIDED, content | found)
        return {name: reply.reply for name, reply in said.items()}

    everybody, lists = dict.fromkeys(REAL, NAMES), {"a": "abc", "b": "abc", "d": "cde", "e": "cde"}
    prepared = friend.call(
        PREPARED,
        {
            "context": context, "seed": b"", "called": "whole", "payload": {"round": 1},
            "keys": keys, "layout": Layout.of(TEMPLATE, NAMES, FINE), "number": 1,
        },
        Moment(1, 1, 1),
    )  # fmt: skip
    said = tell({NAMES: prepared}, everybody, add_up=False) | {"c": prepared}
    words = {name: said[name]["said"] for name in NAMES}
    layout = Layout.of(TEMPLATE, NAMES, FINE)
    asked = {
        "context": context,
        "there": NAMES,
        "prepared": words,
        "layout": layout,
        "documents": 150,
    }
    masked = friend.call(ADDED, asked, Moment(1, 1, 2))
    sent = tell(dict.fromkeys(("abc", "cde"), masked), lists, add_up=True) | {"c": masked}
    agreed = {
        counted: friend.call(AGREED, {"context": context, "seed": seed}, Moment(1, 1, 3 + number))
        for number, counted in enumerate(("abc", "cde"))
        for seed in [seed_of(context, sent, counted)]
    }
    tell(agreed, lists, add_up=False)
    opened = {name: liar.hear(name, Reply).reply["said"] for name in REAL}

    shares = {name: opened[name]["shares"][:SHARE] for name in "de"}  # of the masks of a
    opening = Opening(context, NAMES, NAMES, "cde", words)
    shares["c"] = opening.shares(opening.lost, "c", friend._pair, keys)[:SHARE]
    pair = pair_key(combine(shares, NAMES, 3))
    values = sent["a"]["masked"]["values"].copy()
    remove_self_mask(values, own_seed(opened["a"]["own"]))
    seeds = seeds_of_pairs("a", pair, {n: words[n]["key"] for n in "bcde"}, context)
    for name, seed in seeds.items():
        remove_self_mask(values, seed)  # plus for each name after its own
        assert name > "a"
    np.testing.assert_array_equal(values, layout.encode(reply_of("a"))[0])


def seed_of(context: bytes, sent: Mapping[str, Payload], counted: Sequence[str]) -> bytes:
    total = masked_total({name: sent[name] for name in counted})
    digests = {name: said["digest"] for name, said in total["said"].items()}
    return Total(context, total["values"], digests, {}).seed
