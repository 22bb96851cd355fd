"""Studies carried by other programs: Flower and NVIDIA FLARE."""
