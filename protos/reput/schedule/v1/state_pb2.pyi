from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StateRecord(_message.Message):
    __slots__ = ("epoch", "changes", "full")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    full: FullState
    def __init__(self, epoch: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., full: _Optional[_Union[FullState, _Mapping]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("level", "timers_done")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TIMERS_DONE_FIELD_NUMBER: _ClassVar[int]
    level: LevelPosition
    timers_done: TimersDone
    def __init__(self, level: _Optional[_Union[LevelPosition, _Mapping]] = ..., timers_done: _Optional[_Union[TimersDone, _Mapping]] = ...) -> None: ...

class LevelPosition(_message.Message):
    __slots__ = ("level", "next_offset")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    level: int
    next_offset: int
    def __init__(self, level: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class TimersDone(_message.Message):
    __slots__ = ("queue_offset_steps", "due_steps")
    QUEUE_OFFSET_STEPS_FIELD_NUMBER: _ClassVar[int]
    DUE_STEPS_FIELD_NUMBER: _ClassVar[int]
    queue_offset_steps: _containers.RepeatedScalarFieldContainer[int]
    due_steps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue_offset_steps: _Optional[_Iterable[int]] = ..., due_steps: _Optional[_Iterable[int]] = ...) -> None: ...

class FullState(_message.Message):
    __slots__ = ("levels", "timers", "pending_steps", "done_steps", "done_due_steps", "transactions")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    PENDING_STEPS_FIELD_NUMBER: _ClassVar[int]
    DONE_STEPS_FIELD_NUMBER: _ClassVar[int]
    DONE_DUE_STEPS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedCompositeFieldContainer[LevelPosition]
    timers: TimersPassed
    pending_steps: _containers.RepeatedScalarFieldContainer[int]
    done_steps: _containers.RepeatedScalarFieldContainer[int]
    done_due_steps: _containers.RepeatedScalarFieldContainer[int]
    transactions: TransactionsPassed
    def __init__(self, levels: _Optional[_Iterable[_Union[LevelPosition, _Mapping]]] = ..., timers: _Optional[_Union[TimersPassed, _Mapping]] = ..., pending_steps: _Optional[_Iterable[int]] = ..., done_steps: _Optional[_Iterable[int]] = ..., done_due_steps: _Optional[_Iterable[int]] = ..., transactions: _Optional[_Union[TransactionsPassed, _Mapping]] = ...) -> None: ...

class TimersPassed(_message.Message):
    __slots__ = ("next_queue_offset", "due_millis", "due_queue_offset")
    NEXT_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUE_MILLIS_FIELD_NUMBER: _ClassVar[int]
    DUE_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    next_queue_offset: int
    due_millis: int
    due_queue_offset: int
    def __init__(self, next_queue_offset: _Optional[int] = ..., due_millis: _Optional[int] = ..., due_queue_offset: _Optional[int] = ...) -> None: ...

class TransactionsPassed(_message.Message):
    __slots__ = ("half_offset", "op_offset")
    HALF_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    half_offset: int
    op_offset: int
    def __init__(self, half_offset: _Optional[int] = ..., op_offset: _Optional[int] = ...) -> None: ...
