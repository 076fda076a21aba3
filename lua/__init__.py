"""The Lua toolchain: bundles each script with its includes and reads its header into a call spec.

A script is `lua/<verb>_<noun>.lua`: `#!lua` and its flags on line 1, a header that names keys, arguments, reply and
statuses, then the body.

A line `-- @include name` stands for the text of `lua/include/name.lua`, at that place. Pieces are steps more often
than functions, because making a function costs every call (docs/decisions/001). A piece that is in scope already is
not repeated; what is included on an indented line is in scope until its block ends.

The header is binding: `KEY_<NAME>` and `ARG_<NAME>` in the code mean the keys and arguments it declares, and the code
has no other way to reach them. These names, and constants (`local NAME = literal`), are replaced by their values
when bundling, because a local that functions mention costs far more than its value.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

SCRIPTS = Path(__file__).resolve().parent

_INCLUDE = re.compile(r"^(?P<indent> *)-- @include (?P<name>\w+)$")
_SHEBANG = re.compile(r"^#!lua(?: flags=(?P<flags>[a-z,-]+))?$")
_SECTION = re.compile(r"^-- (?P<title>Guarantees|Keys|Arguments|Reply|Statuses|Log|Cost)\b[^:]*:(?P<rest>.*)$")
_PARAMETER = re.compile(r"^--   (?P<index>\d+) (?P<name>\w+) +(?P<type>\w+) +(?P<meaning>.+)$")
_CONSTANT = re.compile(r"^ *local (?P<name>[A-Z][A-Z_]*) = (?P<value>\d+|'[^']*')\n", re.MULTILINE)
_CAPITALS = re.compile(r"\b[A-Z][A-Z_]+\b")
_SECTIONS = ("Guarantees", "Keys", "Arguments", "Reply", "Statuses", "Log", "Cost")


class ScriptError(Exception):
    """A script file that breaks the toolchain's rules; the text names the file and the fault."""


class Parameter(msgspec.Struct, frozen=True):
    """One key, argument or reply position, as the header declares it."""

    name: str
    type: str
    meaning: str


class Script(msgspec.Struct, frozen=True):
    """A bundled script: what to load, how to call it, and what it may answer."""

    name: str
    purpose: str
    flags: frozenset[str]
    keys: tuple[Parameter, ...]
    arguments: tuple[Parameter, ...]
    reply: tuple[Parameter, ...]
    statuses: tuple[str, ...]
    body: str
    source: bytes
    sha: str


def load_scripts(folder: Path = SCRIPTS) -> Mapping[str, Script]:
    """Every script of a folder by name, bundled."""
    return {path.stem: bundle(path) for path in sorted(folder.glob("*.lua"))}


@cache
def scripts() -> Mapping[str, Script]:
    """Holdfast's own scripts, bundled once."""
    return load_scripts()


def bundle(path: Path, includes: Path | None = None) -> Script:
    """Resolve a script's includes, from the folder beside it unless told otherwise, and its header.

    Raises ScriptError with the file's name and what is wrong.
    """
    text = _read(path)
    shebang, _, rest = text.partition("\n")
    match = _SHEBANG.match(shebang)
    if match is None:
        raise ScriptError(f"{path.name}: line 1 must be '#!lua' with optional flags, not {shebang!r}")
    header, body = _split_header(path, rest)
    keys, arguments = _parameters(path, header["Keys"]), _parameters(path, header["Arguments"])
    code = "\n".join(_expand(path, body, includes or path.parent / "include", set()))
    source = f"{shebang}\n{_inline(path, code, keys, arguments)}".encode()
    return Script(
        name=path.stem,
        purpose=header["purpose"][0],
        flags=frozenset(filter(None, (match["flags"] or "").split(","))),
        keys=keys,
        arguments=arguments,
        reply=_parameters(path, header["Reply"]),
        statuses=tuple(re.findall(r"[a-z_]+", " ".join(header["Statuses"]))),
        body=code,
        source=source,
        sha=hashlib.sha1(source, usedforsecurity=False).hexdigest(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise ScriptError(f"{path.name}: there is no such file") from None


def _expand(path: Path, text: str, includes: Path, visible: set[str], trail: tuple[str, ...] = ()) -> list[str]:
    """The lines of a file with its includes in place.

    What a line at the margin includes joins `visible`; what an indented one includes is visible only to the
    directives next to it, since its block ends.
    """
    lines: list[str] = []
    named: set[str] = set()
    block: set[str] | None = None
    for line in text.splitlines():
        match = _INCLUDE.match(line)
        if match is None:
            block = None
            lines.append(line)
            continue
        if match["indent"]:
            block = block or set(visible)
            scope = block
        else:
            block, scope = None, visible
        name = match["name"]
        if name in trail:
            raise ScriptError(f"{path.name}: includes form a cycle: {' -> '.join((*trail, name))}")
        if name in named and name in scope:
            raise ScriptError(f"{path.name}: includes {name!r} twice")
        named.add(name)
        if name not in scope:
            include = includes / f"{name}.lua"
            if not include.exists():
                raise ScriptError(f"{path.name}: includes {name!r}, which is not in {includes.name}/")
            expanded = _expand(include, _read(include), includes, scope, (*trail, name))
            lines += [match["indent"] + piece for piece in expanded]
            scope.add(name)
    return lines


def _split_header(path: Path, text: str) -> tuple[dict[str, list[str]], str]:
    """The header's sections by title, its first paragraph as 'purpose', and the code after it."""
    lines = text.split("\n")
    length = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    sections: dict[str, list[str]] = {"purpose": []}
    title = "purpose"
    for line in lines[:length]:
        if start := _SECTION.match(line):
            title = start["title"]
            sections[title] = [start["rest"].strip()] if start["rest"].strip() else []
        elif line.strip("- "):
            sections[title].append(line if title in ("Keys", "Arguments", "Reply") else line.lstrip("- "))
    missing = [name for name in _SECTIONS if name not in sections]
    if missing or not sections["purpose"]:
        raise ScriptError(f"{path.name}: the header lacks {', '.join(missing) or 'its purpose'}")
    sections["purpose"] = [" ".join(sections["purpose"])]
    return sections, "\n".join(lines[length:])


def _parameters(path: Path, lines: list[str]) -> tuple[Parameter, ...]:
    found: list[Parameter] = []
    for line in lines:
        match = _PARAMETER.match(line)
        if match is None:
            raise ScriptError(f"{path.name}: the header line {line!r} is not 'index name type meaning'")
        if int(match["index"]) != len(found) + 1:
            raise ScriptError(f"{path.name}: {match['name']} has index {match['index']}, expected {len(found) + 1}")
        found.append(Parameter(match["name"], match["type"], match["meaning"]))
    return tuple(found)


def _inline(path: Path, code: str, keys: tuple[Parameter, ...], arguments: tuple[Parameter, ...]) -> str:
    """The code with keys, arguments and constants in place of their names."""
    values: dict[str, str] = {}
    for match in _CONSTANT.finditer(code):
        value = values.setdefault(match["name"], match["value"])
        if value != match["value"]:
            raise ScriptError(f"{path.name}: the constant {match['name']} has two values, {value} and {match['value']}")
    values |= {f"KEY_{key.name.upper()}": f"KEYS[{i}]" for i, key in enumerate(keys, 1)}
    values |= {f"ARG_{argument.name.upper()}": f"ARGV[{i}]" for i, argument in enumerate(arguments, 1)}
    return _CAPITALS.sub(lambda match: values.get(match[0], match[0]), _CONSTANT.sub("", code))
