"""Studies over other frameworks: Flower and NVIDIA FLARE."""
