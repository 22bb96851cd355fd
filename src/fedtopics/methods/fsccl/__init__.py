"""FSCCL: contrastive clustering, averaged over clients."""
