"""Federated neural topic models (gFedNTM): combined minibatch gradients."""
