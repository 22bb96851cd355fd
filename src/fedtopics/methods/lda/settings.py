"""The parameters of federated LDA, as a study names them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from fedtopics.inference.lda import LDAPrior
from fedtopics.methods.bounded.settings import Bounded, Shares
from fedtopics.methods.core.settings import FIRST_TOPICS, Beginning, MethodName, MinibatchSettings


class LDASettings(Bounded, MinibatchSettings, LDAPrior, MethodName):
    """All parameters of federated LDA, as a study names them."""

    ONCE: ClassVar[int] = 2
    SHARES: ClassVar[Shares] = Shares({"words": 0.05, "sketch": 0.7}, {"topics": 0.25})
    with_privacy: ClassVar[dict[str, Any]] = {
        "learning": "batch", "coherence": "nothing", "max_rounds": 4,
    }  # fmt: skip

    name: Literal["lda"] = Field("lda", description="the method")
    learning: Literal["stochastic", "batch"] = Field(
        "stochastic",
        description='"stochastic": a round is a minibatch; "batch": a round is all documents',
    )
    learning_offset: float = Field(
        10.0, ge=0, description="slows the first stochastic rounds: tau_0 of (tau_0 + round)^-kappa"
    )
    learning_decay: float = Field(
        0.6, gt=0.5, le=1, description="of the weight of a stochastic round: kappa, as above"
    )
    batch_size: int = Field(1024, ge=1, description="documents of a stochastic round")
    initialisation: Beginning = Field("anchors", description=FIRST_TOPICS)
    max_rounds: int = Field(200, ge=1, description="most rounds")

    @property
    def own_exchanges(self) -> str:
        if self.learning == "stochastic":
            return (
                "minibatches need hundreds of rounds, each with noise and none of most documents: "
                'set learning = "batch"'
            )
        if self.initialisation != "anchors":
            return 'first topics are of sums with noise: leave initialisation at "anchors"'
        return ""
