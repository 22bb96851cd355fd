"""What methods that find clusters of documents share: client side, program, settings, views."""
