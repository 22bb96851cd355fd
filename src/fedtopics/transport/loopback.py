"""A link to a server in this process."""

from dataclasses import dataclass

from fedtopics.protocol.link import Service, check_size


@dataclass(frozen=True)
class LoopbackLink:
    """A `Link` of a member that calls a service directly."""

    _service: Service
    _name: str

    def ask(self, message: bytes) -> bytes:
        return self._service.ask(self._name, message)

    def say(self, message: bytes) -> None:
        check_size(len(message), self._service.largest)
        self._service.say(self._name, message)

    def fetch(self, what: bytes, most: int | None = None) -> bytes:
        return self._service.fetch(self._name, what)
