"""Write each round's numbers for TensorBoard, as a run tells them.

python examples/tensorboard_events.py study.toml && tensorboard --logdir runs/tensorboard
"""

import sys
from typing import Any

from torch.utils.tensorboard import SummaryWriter  # pip install torch tensorboard

from fedtopics import Study, train

with SummaryWriter("runs/tensorboard") as board:

    def write(event: dict[str, Any]) -> None:
        """Take an event: of a round, its loss, seconds and bytes."""
        if event["event"] == "round":
            for name in {"loss", "seconds", "bytes_sent", "bytes_received"} & event.keys():
                board.add_scalar(name, event[name], event["round"])

    train(Study.read(sys.argv[1]), on_event=write)
