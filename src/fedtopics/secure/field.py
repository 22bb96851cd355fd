"""Numbers modulo a prime."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

PRIME = (1 << 61) - 1
Residues: TypeAlias = NDArray[np.uint64]
