"""What methods, protocol and engines agree on: interfaces, events, payloads and their bounds."""
