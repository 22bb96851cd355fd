from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("hello", "offer", "accept", "refusal", "call", "reply", "failure", "chunk", "heartbeat", "result", "received")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    offer: Offer
    accept: Accept
    refusal: Refusal
    call: Call
    reply: Reply
    failure: Failure
    chunk: bytes
    heartbeat: Heartbeat
    result: Result
    received: Received
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., accept: _Optional[_Union[Accept, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., chunk: _Optional[bytes] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., received: _Optional[_Union[Received, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("product", "wire", "methods", "process", "name", "look")
    class MethodsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    product: str
    wire: int
    methods: _containers.ScalarMap[str, int]
    process: bytes
    name: str
    look: bool
    def __init__(self, product: _Optional[str] = ..., wire: _Optional[int] = ..., methods: _Optional[_Mapping[str, int]] = ..., process: _Optional[bytes] = ..., name: _Optional[str] = ..., look: bool = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("product", "wire", "method", "method_version", "study", "fingerprint", "run", "time", "chunk")
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    METHOD_VERSION_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    product: str
    wire: int
    method: str
    method_version: int
    study: Value
    fingerprint: str
    run: bytes
    time: float
    chunk: int
    def __init__(self, product: _Optional[str] = ..., wire: _Optional[int] = ..., method: _Optional[str] = ..., method_version: _Optional[int] = ..., study: _Optional[_Union[Value, _Mapping]] = ..., fingerprint: _Optional[str] = ..., run: _Optional[bytes] = ..., time: _Optional[float] = ..., chunk: _Optional[int] = ...) -> None: ...

class Accept(_message.Message):
    __slots__ = ("fingerprint", "name")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    name: str
    def __init__(self, fingerprint: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "again")
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    reason: str
    again: bool
    def __init__(self, reason: _Optional[str] = ..., again: bool = ...) -> None: ...

class Body(_message.Message):
    __slots__ = ("structure", "data", "small")
    STRUCTURE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SMALL_FIELD_NUMBER: _ClassVar[int]
    structure: int
    data: int
    small: bytes
    def __init__(self, structure: _Optional[int] = ..., data: _Optional[int] = ..., small: _Optional[bytes] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("id", "round", "attempt", "function", "body", "standing")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    id: int
    round: int
    attempt: int
    function: str
    body: Body
    standing: bool
    def __init__(self, id: _Optional[int] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., function: _Optional[str] = ..., body: _Optional[_Union[Body, _Mapping]] = ..., standing: bool = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("id", "study", "body", "seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: int
    study: str
    body: Body
    seconds: float
    def __init__(self, id: _Optional[int] = ..., study: _Optional[str] = ..., body: _Optional[_Union[Body, _Mapping]] = ..., seconds: _Optional[float] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("id", "kind", "leaves")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: str
    leaves: bool
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[str] = ..., leaves: bool = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: Body
    def __init__(self, body: _Optional[_Union[Body, _Mapping]] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Value(_message.Message):
    __slots__ = ("nothing", "truth", "integer", "real", "text", "list", "map", "tensor", "rows", "texts", "named")
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    TRUTH_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    nothing: bool
    truth: bool
    integer: int
    real: float
    text: str
    list: List
    map: Map
    tensor: Tensor
    rows: Tensor
    texts: Texts
    named: Named
    def __init__(self, nothing: bool = ..., truth: bool = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., text: _Optional[str] = ..., list: _Optional[_Union[List, _Mapping]] = ..., map: _Optional[_Union[Map, _Mapping]] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ..., rows: _Optional[_Union[Tensor, _Mapping]] = ..., texts: _Optional[_Union[Texts, _Mapping]] = ..., named: _Optional[_Union[Named, _Mapping]] = ...) -> None: ...

class List(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Texts(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Named(_message.Message):
    __slots__ = ("names", "values")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    values: Tensor
    def __init__(self, names: _Optional[_Iterable[str]] = ..., values: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Map(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Value
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "present")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    present: bytes
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., present: _Optional[bytes] = ...) -> None: ...
