"""docker-compose.yml against what its programs really accept, without a Docker engine."""

import re
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from holdfast.cli import build_parser
from holdfast.embedded import VALKEY_OPTIONS, start_valkey
from holdfast.engine.settings import VARIABLE_PREFIX, Settings, variable

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OWN = ("front-end", "keeper")
WITH_A_PORT = ("valkey", "postgres", "front-end")

# Values for the variables that the file demands from its user.
DEMANDED = {"POSTGRES_PASSWORD": "secret", "HOLDFAST_TOKEN_SECRET": "s" * 32}


def environment(service: str) -> dict[str, str]:
    """The variables of a service, after the substitution that Compose does."""
    return {name: substitute(str(value)) for name, value in SERVICES[service]["environment"].items()}


def substitute(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        return rest if operator == ":-" else DEMANDED[name]

    return re.sub(r"\$\{(\w+)(:-|:\?)([^}]*)\}", value, text)


def test_the_services_are_the_processes_of_the_design() -> None:
    assert set(SERVICES) == {"valkey", "postgres", "front-end", "keeper"}


@pytest.mark.parametrize("service", SERVICES)
def test_every_image_is_pinned_to_a_version(service: str) -> None:
    assert re.search(r":\d+(\.\d+)*$", SERVICES[service]["image"])


def test_the_base_image_is_pinned_and_runs_as_an_ordinary_user() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()

    assert re.search(r"^FROM python:3\.\d+-slim$", dockerfile, re.MULTILINE)
    assert re.search(r"^USER (?!root)\w+$", dockerfile, re.MULTILINE)


@pytest.mark.parametrize("service", OWN)
def test_every_command_is_one_that_the_command_line_accepts(service: str) -> None:
    program, *arguments = SERVICES[service]["command"]

    assert program == "holdfast"
    assert callable(build_parser().parse_args(arguments).run)


def test_the_command_of_the_image_is_one_that_the_command_line_accepts() -> None:
    (command,) = re.findall(r"^CMD (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    program, *arguments = yaml.safe_load(command)

    assert program == "holdfast"
    assert build_parser().parse_args(arguments).host == "0.0.0.0"


@pytest.mark.parametrize("service", OWN)
def test_every_variable_is_a_setting_with_a_valid_value(service: str) -> None:
    variables = environment(service)
    known = {variable(name) for name in Settings.__struct_fields__}

    assert {name for name in variables if name.startswith(VARIABLE_PREFIX)} <= known
    settings = Settings.read(variables)
    assert settings.redis_url == "redis://valkey:6379/0"
    assert settings.postgres_dsn == "postgresql://holdfast:secret@postgres:5432/holdfast"
    assert settings.token_secret == "s" * 32


def test_the_front_end_listens_where_its_published_port_leads() -> None:
    front_end = SERVICES["front-end"]
    arguments = build_parser().parse_args(front_end["command"][1:])

    assert substitute(front_end["ports"][0]) == f"8080:{arguments.port}"
    assert f":{arguments.port}/readyz" in front_end["healthcheck"]["test"][-1]


@pytest.mark.parametrize("service", OWN)
def test_our_processes_start_when_both_stores_are_healthy(service: str) -> None:
    assert SERVICES[service]["depends_on"] == {
        "valkey": {"condition": "service_healthy"},
        "postgres": {"condition": "service_healthy"},
    }


@pytest.mark.parametrize("service", WITH_A_PORT)
def test_every_service_with_a_port_has_a_health_check(service: str) -> None:
    assert SERVICES[service]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize(("service", "place"), [("valkey", "/data"), ("postgres", "/var/lib/postgresql")])
def test_every_store_keeps_its_data_in_a_named_volume(service: str, place: str) -> None:
    (volume,) = SERVICES[service]["volumes"]
    name, _, target = volume.partition(":")

    assert target == place
    assert name in COMPOSE["volumes"]


def test_valkey_accepts_its_flags_and_they_are_those_of_the_embedded_server(tmp_path: Path) -> None:
    program, *flags = SERVICES["valkey"]["command"]
    options = {flag.removeprefix("--"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)}

    assert program == "valkey-server"
    assert options == VALKEY_OPTIONS
    server = start_valkey(tmp_path / "valkey", options=options)
    try:
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.config_get(*options) == options
    finally:
        server.stop()
