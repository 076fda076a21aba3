import argparse
import os
import stat
import uuid
from pathlib import Path

import jwt
import pytest

import holdfast
from holdfast.cli import build_parser, main
from holdfast.data_dir import DataDir

USER = "6f1c5f0e-7d2b-4b1e-9a53-0d3f5c1b2a10"
ORGANIZATION = "0b9a4c52-3f3e-4f0c-8d55-5f0a7c6e1d21"
TOKEN = ["token", "--user", USER, "--org", ORGANIZATION, "--role", "admin"]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    actions = build_parser()._actions
    (commands,) = (action for action in actions if isinstance(action, argparse._SubParsersAction))
    return commands.choices


@pytest.mark.parametrize("command", command_parsers())
def test_every_command_explains_itself_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])

    assert caught.value.code == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert "example: " in help_text
    assert f"holdfast {command}" in help_text.split("example: ")[1]


def test_the_version_is_the_one_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["up", "--port", "http"],
        ["up", "--speed"],
        ["serve", "--workers", "0"],
        ["keep", "calm"],
        ["token", "--user", USER, "--count", "2", "--org", ORGANIZATION, "--role", "admin"],
        ["token", "--user", USER, "--org", ORGANIZATION],
        ["token", "--user", "me", "--org", ORGANIZATION, "--role", "admin"],
        ["token", "--user", USER, "--org", ORGANIZATION, "--role", "king"],
        [*TOKEN, "--ttl", "0"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    assert "usage: holdfast" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "serve", "keep"])
def test_a_bad_setting_is_one_sentence_and_exits_with_2(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_SHARDS", "none")

    assert main([command]) == 2
    assert capsys.readouterr().err == "holdfast: shards (HOLDFAST_SHARDS) must be a whole number from 1 to 16384.\n"


def test_token_signs_with_the_secret_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN_SECRET", "e" * 32)

    assert main([*TOKEN, "--tier", "gold", "--ttl", "5"]) == 0

    claims = decode(capsys.readouterr().out.splitlines()[-1], "e" * 32)
    assert (claims["sub"], claims["org"], claims["role"], claims["tier"]) == (USER, ORGANIZATION, "admin", "gold")
    assert claims["exp"] - claims["iat"] == 5


def test_token_makes_many_at_once_each_of_another_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN_SECRET", "e" * 32)

    assert main(["token", "--count", "50", "--org", ORGANIZATION, "--role", "customer"]) == 0

    claims = [decode(line, "e" * 32) for line in capsys.readouterr().out.splitlines()]
    assert {each["org"] for each in claims} == {ORGANIZATION}
    assert len({each["sub"] for each in claims}) == 50


def test_token_signs_with_the_secret_of_the_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = DataDir(tmp_path).token_secret()

    assert main([*TOKEN, "--data-dir", str(tmp_path)]) == 0

    assert decode(capsys.readouterr().out.splitlines()[-1], secret)["role"] == "admin"
    assert stat.S_IMODE((tmp_path / "token_secret").stat().st_mode) == 0o600


def test_token_without_any_secret_says_where_to_get_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TOKEN, "--data-dir", str(tmp_path / str(uuid.uuid4()))]) == 1

    complaint = capsys.readouterr().err
    assert complaint.startswith("holdfast: There is no token secret: set HOLDFAST_TOKEN_SECRET")
    assert complaint.count("\n") == 1


def decode(token: str, secret: str) -> dict[str, int | str]:
    return jwt.decode(token, secret, algorithms=["HS256"], issuer="holdfast", audience="holdfast")
