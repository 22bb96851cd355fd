"""Studies and their participants: clients, server, policy, ledger, and the run folder."""
