"""What all methods share: interfaces, plan, client side, agreement, training loop, last steps."""
