"""Every command by its words, with its parameters: what a second door needs to call it.

Reads the signatures that Typer reads. Decides nothing about who may call what.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.errors import UsageError
from plimsoll.words import near

OWN_TO_A_TERMINAL = frozenset({"context", "db", "output", "watch"})
"""What a terminal decides for every command; another door has its own ways."""
TEXT_CHARS_MAX = 4_000
ITEMS_MAX = 1_000


class Parameter(msgspec.Struct, frozen=True):
    """One thing that a command takes: `name` as its flag is written, `key` as its function calls it."""

    name: str
    key: str
    type: Any
    is_list: bool
    is_required: bool
    default: object
    help: str
    least: float | None = None
    most: float | None = None

    @property
    def is_path(self) -> bool:
        return self.type is Path


class Command(msgspec.Struct, frozen=True):
    """A function that answers, and what it takes."""

    words: str
    call: Callable[..., None]
    parameters: Mapping[str, Parameter]
    help: str
    output: Any = None
    """The value of `-o` that asks for JSON; None where the command has none."""

    has_context: bool = True

    def done(self, output: str = "json", /, **values: Any) -> None:
        """Do it at the desk that is set, as `-o` asks for it, with values by the function's own names."""
        own: dict[str, Any] = {"context": None} if self.has_context else {}
        if self.output is not None:
            own["output"] = next((each for each in type(self.output) if each.value == output), self.output)
        self.call(**own, **values)

    def takes(self, name: str) -> bool:
        return name in self.parameters


@functools.cache
def commands_of(noun: str) -> Mapping[str, Command]:
    """The commands of one noun, by their words."""
    app = importlib.import_module(f"plimsoll.commands.{noun}").app
    found = dict(_walk(app, noun))
    if list(found) == [f"{noun} {noun}"]:  # a noun that is itself the verb, such as `why`
        found = {noun: found[f"{noun} {noun}"]}
    return {words: _read(words, call) for words, call in found.items()}


def command(words: str) -> Command:
    """The command that the words name."""
    return commands_of(words.split()[0])[words]


def _walk(app: Any, words: str) -> Iterator[tuple[str, Callable[..., None]]]:
    for each in app.registered_commands:
        yield f"{words} {each.name or each.callback.__name__.replace('_', '-')}", each.callback
    for group in app.registered_groups:
        yield from _walk(group.typer_instance, f"{words} {group.name or group.typer_instance.info.name}")


def _read(words: str, call: Callable[..., None]) -> Command:
    hints = typing.get_type_hints(call, include_extras=True)
    parameters = {}
    output = None
    for key, signature in inspect.signature(call).parameters.items():
        if key == "output":
            forms = type(signature.default)
            output = forms("json") if "json" in [each.value for each in forms] else signature.default
        if key in OWN_TO_A_TERMINAL:
            continue
        parameter = _parameter(key, hints[key], signature.default)
        parameters[parameter.name] = parameter
    has_context = "context" in inspect.signature(call).parameters
    return Command(words, call, parameters, inspect.getdoc(call) or "", output, has_context)


def _parameter(key: str, hint: Any, default: object) -> Parameter:
    base, info = hint.__origin__, hint.__metadata__[0]
    if isinstance(base, types.UnionType):
        base = next(each for each in typing.get_args(base) if each is not types.NoneType)
    is_list = typing.get_origin(base) is list
    kind = typing.get_args(base)[0] if is_list else base
    # Where the flags stand in an Annotated, Typer takes the first of them for the default.
    flags = [flag for flag in (info.default, *(info.param_decls or ())) if str(flag).startswith("--")]
    name = flags[0].split("/")[0].removeprefix("--").replace("-", "_") if flags else key
    return Parameter(
        name="filter" if key == "filters" else name,
        key=key,
        type=kind,
        is_list=is_list,
        is_required=default is inspect.Parameter.empty,
        default=None if default is inspect.Parameter.empty else default,
        help=(info.help or "").strip(),
        least=info.min,
        most=info.max,
    )


def convert(parameter: Parameter, value: object) -> Any:
    """A value from outside as the function wants it; wrong ones are refused by name."""
    if parameter.is_list:
        items = value if isinstance(value, list) else [value]
        if len(items) > ITEMS_MAX:
            raise _bad(parameter, f"{len(items):,} items, and at most {ITEMS_MAX:,} are taken")
        return [_one(parameter, item) for item in items]
    if isinstance(value, list):
        if len(value) != 1:
            raise _bad(parameter, f"is given {len(value)} times, and is one value")
        value = value[0]
    return _one(parameter, value)


def _one(parameter: Parameter, value: object) -> Any:
    if parameter.type in (str, Path):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _bad(parameter, "is not a text")
        text = str(value)
        if len(text) > TEXT_CHARS_MAX or "\0" in text:
            raise _bad(parameter, f"has {len(text):,} characters, and at most {TEXT_CHARS_MAX:,} are taken")
        return text
    if isinstance(parameter.type, type) and issubclass(parameter.type, enum.Enum):
        known = [str(each.value) for each in parameter.type]
        if not isinstance(value, str | int) or str(value) not in known:
            said = str(value)[:100]
            raise _bad(parameter, f"{said!r} is none of {', '.join(known)}{near(said, known)}")
        return next(each for each in parameter.type if str(each.value) == str(value))
    try:
        number = msgspec.convert(value, parameter.type, strict=not isinstance(value, str))
    except msgspec.ValidationError:
        raise _bad(parameter, f"{str(value)[:100]!r} is not {_NOUN[parameter.type]}") from None
    if isinstance(number, int | float) and not isinstance(number, bool):
        if parameter.least is not None and number < parameter.least:
            raise _bad(parameter, f"{number} is less than {parameter.least:g}")
        if (parameter.most is not None and number > parameter.most) or abs(number) > INTEGER_MAX:
            raise _bad(parameter, f"{number} is more than {parameter.most or INTEGER_MAX:g}")
    return number


_NOUN = {int: "a whole number", float: "a number", bool: "true or false"}
INTEGER_MAX = 2**53


def _bad(parameter: Parameter, what: str) -> UsageError:
    return UsageError("bad_parameter", f"{parameter.name}: {what}", next_step=parameter.help, parameter=parameter.name)
