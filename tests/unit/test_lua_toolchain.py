"""Bundling, and that the header of every script is true of its body. Needs no server."""

import hashlib
import re
from pathlib import Path

import pytest

from holdfast.lua import SCRIPTS, Script, ScriptError, bundle, load_scripts, scripts

HEADER = """\
-- Does a thing.
--
-- Guarantees: nothing.
--
-- Keys:
--   1 open string  the fence
--   2 log  stream  the log
-- Arguments:
--   1 scope bytes  where
--   2 limit int    how many, 1 to 200
-- Reply:
--   1 status int  one of the statuses
-- Statuses, in order of precedence:
--   fenced, invalid_request,
--   done
-- Log: nothing.
-- Cost: O(1).
"""

EVERY_SCRIPT = pytest.mark.parametrize("script", scripts().values(), ids=lambda script: script.name)
EVERY_FILE = pytest.mark.parametrize(
    "path", sorted(SCRIPTS.glob("**/*.lua")), ids=lambda path: str(path.relative_to(SCRIPTS))
)


class Folder:
    """A folder of scripts in the making."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "include").mkdir()

    def bundle(self, body: str, *, shebang: str = "#!lua", header: str = HEADER) -> Script:
        entry = self.path / "do_thing.lua"
        entry.write_text(f"{shebang}\n{header}\n{body}\n")
        return bundle(entry)

    def include(self, name: str, text: str) -> None:
        (self.path / "include" / f"{name}.lua").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def code(script: Script) -> list[str]:
    return [line for line in script.body.splitlines() if line]


def test_an_include_stands_where_it_is_named(folder: Folder) -> None:
    folder.include("piece", "local b = 2\n")

    script = folder.bundle("local a = 1\n-- @include piece\nlocal c = 3")

    assert code(script) == ["local a = 1", "local b = 2", "local c = 3"]


def test_an_indented_include_is_indented(folder: Folder) -> None:
    folder.include("piece", "if b then\n  c()\nend\n")

    script = folder.bundle("if a then\n  -- @include piece\nend")

    assert code(script) == ["if a then", "  if b then", "    c()", "  end", "end"]


def test_what_is_in_scope_is_not_included_again(folder: Folder) -> None:
    folder.include("base", "local base = 1\n")
    folder.include("first", "-- @include base\nlocal first = base\n")
    folder.include("second", "-- @include base\nlocal second = base\n")

    script = folder.bundle("-- @include first\n-- @include second")

    assert code(script) == ["local base = 1", "local first = base", "local second = base"]


def test_what_the_margin_includes_is_in_scope_in_every_block_below(folder: Folder) -> None:
    folder.include("base", "local base = 1\n")
    folder.include("piece", "-- @include base\nuse(base)\n")

    script = folder.bundle("-- @include base\nif a then\n  -- @include piece\nend")

    assert code(script) == ["local base = 1", "if a then", "  use(base)", "end"]


def test_what_a_block_includes_is_gone_with_the_block(folder: Folder) -> None:
    folder.include("base", "local base = 1\n")
    folder.include("piece", "-- @include base\nuse(base)\n")

    script = folder.bundle("if a then\n  -- @include base\nend\nif b then\n  -- @include piece\nend\n-- @include base")

    assert code(script) == [
        "if a then",
        "  local base = 1",
        "end",
        "if b then",
        "  local base = 1",
        "  use(base)",
        "end",
        "local base = 1",
    ]


def test_includes_side_by_side_in_a_block_share_its_scope(folder: Folder) -> None:
    folder.include("base", "local base = 1\n")
    folder.include("piece", "-- @include base\nuse(base)\n")

    script = folder.bundle("if a then\n  -- @include base\n  -- @include piece\nend")

    assert code(script) == ["if a then", "  local base = 1", "  use(base)", "end"]


def test_a_cycle_is_refused_with_its_path(folder: Folder) -> None:
    folder.include("first", "-- @include second\n")
    folder.include("second", "-- @include first\n")

    with pytest.raises(ScriptError, match=r"second\.lua: includes form a cycle: first -> second -> first"):
        folder.bundle("-- @include first")


def test_a_piece_that_includes_itself_is_refused(folder: Folder) -> None:
    folder.include("first", "-- @include first\n")

    with pytest.raises(ScriptError, match="cycle: first -> first"):
        folder.bundle("-- @include first")


def test_an_include_that_does_not_exist_is_refused(folder: Folder) -> None:
    with pytest.raises(ScriptError, match=r"do_thing\.lua: includes 'nowhere', which is not in include/"):
        folder.bundle("-- @include nowhere")


def test_an_include_named_twice_is_refused(folder: Folder) -> None:
    folder.include("piece", "local b = 2\n")

    with pytest.raises(ScriptError, match=r"do_thing\.lua: includes 'piece' twice"):
        folder.bundle("-- @include piece\nlocal a = 1\n-- @include piece")


def test_a_script_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"nothing\.lua: there is no such file"):
        bundle(tmp_path / "nothing.lua")


@pytest.mark.parametrize(
    "shebang", ["", "#!/usr/bin/lua", "#!lua name=x", "#!lua flags=No_Writes", " #!lua", "-- #!lua"]
)
def test_a_bad_shebang_is_refused(folder: Folder, shebang: str) -> None:
    with pytest.raises(ScriptError, match=r"do_thing\.lua: line 1 must be '#!lua' with optional flags"):
        folder.bundle("return 1", shebang=shebang)


@pytest.mark.parametrize(
    ("shebang", "flags"),
    [
        ("#!lua", set()),
        ("#!lua flags=no-writes", {"no-writes"}),
        ("#!lua flags=no-writes,allow-stale", {"no-writes", "allow-stale"}),
    ],
)
def test_flags_are_read_from_the_shebang_which_stays_on_line_1(folder: Folder, shebang: str, flags: set[str]) -> None:
    script = folder.bundle("return 1", shebang=shebang)

    assert script.flags == flags
    assert script.source.startswith(shebang.encode() + b"\n")


@pytest.mark.parametrize("section", ["Guarantees", "Keys", "Arguments", "Reply", "Statuses", "Log", "Cost"])
def test_a_missing_header_section_is_refused(folder: Folder, section: str) -> None:
    header = re.sub(rf"-- {section}.*?:.*\n", "", HEADER)

    with pytest.raises(ScriptError, match=rf"do_thing\.lua: .*{section}|is not 'index name type meaning'"):
        folder.bundle("return 1", header=header)


def test_a_missing_purpose_is_refused(folder: Folder) -> None:
    with pytest.raises(ScriptError, match=r"do_thing\.lua: the header lacks its purpose"):
        folder.bundle("return 1", header=HEADER.replace("-- Does a thing.\n", ""))


def test_an_index_out_of_order_is_refused(folder: Folder) -> None:
    with pytest.raises(ScriptError, match=r"do_thing\.lua: log has index 3, expected 2"):
        folder.bundle("return 1", header=HEADER.replace("2 log", "3 log"))


def test_a_parameter_without_a_meaning_is_refused(folder: Folder) -> None:
    with pytest.raises(ScriptError, match="is not 'index name type meaning'"):
        folder.bundle("return 1", header=HEADER.replace("  the fence", ""))


def test_the_header_becomes_the_call_spec(folder: Folder) -> None:
    script = folder.bundle("return 1")

    assert script.name == "do_thing"
    assert script.purpose == "Does a thing."
    assert [(key.name, key.type, key.meaning) for key in script.keys] == [
        ("open", "string", "the fence"),
        ("log", "stream", "the log"),
    ]
    assert [argument.name for argument in script.arguments] == ["scope", "limit"]
    assert [position.name for position in script.reply] == ["status"]
    assert script.statuses == ("fenced", "invalid_request", "done")


def test_keys_arguments_and_constants_are_replaced_by_their_values(folder: Folder) -> None:
    folder.include("limits", "local MOST = 200\nlocal LAYOUT = '>I2I4'\n")

    script = folder.bundle("-- @include limits\ncall('GET', KEY_LOG, ARG_SCOPE, MOST, LAYOUT)\nlocal count = ARG_LIMIT")

    assert b"call('GET', KEYS[2], ARGV[1], 200, '>I2I4')\nlocal count = ARGV[2]" in script.source
    assert b"local MOST" not in script.source
    assert "call('GET', KEY_LOG, ARG_SCOPE, MOST, LAYOUT)" in script.body


def test_what_is_not_declared_is_left_alone(folder: Folder) -> None:
    assert b"return KEY_NOWHERE" in folder.bundle("return KEY_NOWHERE").source


def test_only_whole_names_are_replaced(folder: Folder) -> None:
    assert b"return KEY_LOGS, MY_LOG" in folder.bundle("local LOG = 1\nreturn KEY_LOGS, MY_LOG").source


def test_a_constant_with_two_values_is_refused(folder: Folder) -> None:
    folder.include("one", "local MOST = 1\n")
    folder.include("two", "local MOST = 2\n")

    with pytest.raises(ScriptError, match=r"do_thing\.lua: the constant MOST has two values, 1 and 2"):
        folder.bundle("-- @include one\n-- @include two\nreturn MOST")


def test_scripts_of_a_folder_are_found_by_name(folder: Folder) -> None:
    folder.bundle("return 1")

    assert list(load_scripts(folder.path)) == ["do_thing"]


def test_the_sha_is_that_of_the_source(folder: Folder) -> None:
    first, second = folder.bundle("return 1"), folder.bundle("return 2")

    assert first.sha != second.sha
    assert first.sha == hashlib.sha1(first.source, usedforsecurity=False).hexdigest()


# What follows holds Holdfast's own scripts to their headers.

STATUSES = dict(
    re.findall(r"^local ([A-Z_]+) = (\d+)$", (SCRIPTS / "include" / "status.lua").read_text(), re.MULTILINE)
)
READERS = {"read_event", "read_holds"}
GIVING_BACK = {"release_holds", "expire_holds", "unblock_seats", "close_event"}


def without_comments(text: str) -> str:
    return re.sub(r"--.*", "", text)


def used_names(script: Script, prefix: str) -> set[str]:
    return {name.lower() for name in re.findall(rf"\b{prefix}_([A-Z_]+)\b", without_comments(script.body))}


def used_statuses(script: Script) -> set[str]:
    lines = without_comments(script.body).splitlines()
    in_use = "\n".join(line for line in lines if not re.match(r"\s*local [A-Z_]+ = \d+$", line))
    return {name.lower() for name in STATUSES if re.search(rf"\b{name}\b", in_use)}


def replies(script: Script) -> list[list[str]]:
    """The parts of every `return { … }` that is not a table of named fields."""
    tables = re.findall(r"return \{ (.*?) \}(?= *\n| *$)", without_comments(script.body), re.DOTALL)
    return [parts for parts in map(split_parts, tables) if not any(re.match(r"\w+ = ", part) for part in parts)]


def split_parts(table: str) -> list[str]:
    """Split at the commas that are in no brackets and no quotes."""
    parts, depth, quoted = [""], 0, False
    for char in table:
        quoted ^= char == "'"
        depth += 0 if quoted else (char in "({[") - (char in ")}]")
        if char == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def test_parts_are_split_at_outer_commas_only() -> None:
    assert split_parts("DONE, call('GET', a), { 1, 2 }, 'a,b', ''") == [
        "DONE",
        "call('GET', a)",
        "{ 1, 2 }",
        "'a,b'",
        "''",
    ]


def test_there_are_the_scripts_of_the_design() -> None:
    assert set(scripts()) == READERS | GIVING_BACK | {
        "allocate_accessible_seats",
        "allocate_seats",
        "offer_seats",
        "block_seats",
        "confirm_holds",
        "decline_companions",
        "extend_holds",
        "hold_seats",
        "load_event",
        "open_event",
        "set_event_state",
    }


@EVERY_SCRIPT
def test_the_keys_declared_are_the_keys_used(script: Script) -> None:
    assert used_names(script, "KEY") == {key.name for key in script.keys}


@EVERY_SCRIPT
def test_the_arguments_declared_are_the_arguments_used(script: Script) -> None:
    assert used_names(script, "ARG") == {argument.name for argument in script.arguments}


@EVERY_SCRIPT
def test_the_statuses_declared_are_the_statuses_used(script: Script) -> None:
    assert used_statuses(script) == set(script.statuses)


@EVERY_SCRIPT
def test_statuses_are_known_and_declared_once(script: Script) -> None:
    assert {status.upper() for status in script.statuses} <= STATUSES.keys()
    assert len(set(script.statuses)) == len(script.statuses)
    assert script.statuses[:2] == ("fenced", "invalid_request")


@EVERY_SCRIPT
def test_every_reply_has_the_declared_length(script: Script) -> None:
    found = replies(script)

    assert len(found) >= 3
    assert {len(parts) for parts in found} == {len(script.reply)}
    assert script.reply[0].name == "status"


@EVERY_SCRIPT
def test_no_name_is_left_to_be_replaced(script: Script) -> None:
    source = without_comments(script.source.decode())

    assert not re.search(r"\b(?:KEY|ARG)_[A-Z]", source)
    for name in STATUSES:
        assert not re.search(rf"\b{name}\b", source)


@EVERY_SCRIPT
def test_flags_say_what_a_script_may_do(script: Script) -> None:
    """A full server still answers readers, and takes what sets memory free."""
    if script.name in READERS:
        assert script.flags == {"no-writes"}
    elif script.name in GIVING_BACK:
        assert script.flags == {"allow-oom"}
    else:
        assert not script.flags


@EVERY_SCRIPT
def test_the_sha_of_every_script_is_that_of_its_source(script: Script) -> None:
    assert script.sha == hashlib.sha1(script.source, usedforsecurity=False).hexdigest()


@EVERY_FILE
def test_keys_and_arguments_are_reached_by_name_only(path: Path) -> None:
    assert not re.search(r"\b(?:KEYS|ARGV)\b", path.read_text())


@EVERY_FILE
def test_files_speak_to_redis_and_not_to_valkey_only(path: Path) -> None:
    text = without_comments(path.read_text())

    assert not re.search(r"\bserver\s*[.\[]", text)
    assert set(re.findall(r"\bredis\.(\w+)", text)) <= {"call"}


@EVERY_FILE
def test_lines_fit(path: Path) -> None:
    too_long = [i for i, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]

    assert not too_long


@pytest.mark.parametrize("path", sorted((SCRIPTS / "include").glob("*.lua")), ids=lambda path: path.stem)
def test_every_include_is_included_somewhere(path: Path) -> None:
    directive = re.compile(rf"^ *-- @include {path.stem}$", re.MULTILINE)

    assert any(directive.search(other.read_text()) for other in SCRIPTS.glob("**/*.lua") if other != path)


@EVERY_FILE
def test_functions_take_at_most_four_parameters(path: Path) -> None:
    for parameters in re.findall(r"function \w+\(([^)]*)\)", path.read_text()):
        assert len(parameters.split(",")) <= 4
