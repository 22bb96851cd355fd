"""Log each round's loss, seconds and bytes to TensorBoard.

python examples/tensorboard_events.py study.toml && tensorboard --logdir runs/tensorboard
"""

import sys
from typing import Any

from torch.utils.tensorboard import SummaryWriter  # pip install torch tensorboard

from fedtopics import Study, train

with SummaryWriter("runs/tensorboard") as board:

    def write(event: dict[str, Any]) -> None:
        """Log a round; other events are ignored."""
        if event["event"] == "round":
            for name in {"loss", "seconds", "bytes_sent", "bytes_received"} & event.keys():
                board.add_scalar(name, event[name], event["round"])

    train(Study.read(sys.argv[1]), on_event=write)
