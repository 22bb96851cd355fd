"""A study and who takes part in it: server, clients, the door of each, and a run's folder."""
