"""Settings that must be made before anything imports numpy or torch."""

import os

# The tests' matrices are tiny: two threads would wait for each other longer than they compute,
# above all on a machine that is busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
