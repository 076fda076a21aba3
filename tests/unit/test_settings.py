import pytest

from holdfast.engine.settings import Settings, SettingsError, variable


def test_defaults_need_no_environment() -> None:
    settings = Settings.read({})

    assert settings.host == "127.0.0.1"
    assert settings.port == 8080
    assert settings.shards == 16
    assert settings.token_secret is None
    assert settings.token_issuer == settings.token_audience == "holdfast"


def test_a_flag_outranks_a_variable_and_a_variable_outranks_the_default() -> None:
    environment = {"HOLDFAST_PORT": "9000", "HOLDFAST_SHARDS": "4"}

    settings = Settings.read(environment, port=9001, host=None)

    assert (settings.port, settings.shards, settings.host) == (9001, 4, "127.0.0.1")


def test_an_empty_variable_counts_as_absent() -> None:
    assert Settings.read({"HOLDFAST_PORT": ""}).port == 8080


def test_port_zero_is_a_value_and_not_an_absence() -> None:
    assert Settings.read({"HOLDFAST_PORT": "9000"}, port=0).port == 0


def test_settings_survive_the_way_through_an_environment() -> None:
    settings = Settings.read({}, port=9001, token_secret="s" * 32, redis_url="rediss://cache:1/2")

    assert Settings.read(settings.environment()) == settings


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("port", "http", "a whole number from 0 to 65535"),
        ("port", "65536", "a whole number from 0 to 65535"),
        ("port", "-1", "a whole number from 0 to 65535"),
        ("shards", "0", "a whole number from 1 to 16384"),
        ("shards", "1.5", "a whole number from 1 to 16384"),
        ("redis_url", "http://127.0.0.1", "a redis://, rediss:// or unix:// URL"),
        ("redis_url", "127.0.0.1:6379", "a redis://, rediss:// or unix:// URL"),
        ("redis_url", "redis://", "a redis://, rediss:// or unix:// URL"),
        ("redis_url", "redis://cache:port", "a redis://, rediss:// or unix:// URL"),
        ("redis_url", "redis://[", "a redis://, rediss:// or unix:// URL"),
        ("postgres_dsn", "postgresql://[", "a postgresql:// URL"),
        ("postgres_dsn", "postgresql://db:port/holdfast", "a postgresql:// URL"),
        ("postgres_dsn", "mysql://127.0.0.1/x", "a postgresql:// URL"),
        ("token_secret", "hunter2", "at least 32 characters long"),
    ],
)
def test_a_bad_value_is_named_in_one_sentence_that_does_not_quote_it(name: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.read({variable(name): value})

    assert str(caught.value) == f"{name} ({variable(name)}) must be {expected}."


def test_a_flag_that_is_no_setting_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError):
        Settings.read({}, prot=1)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("redis_url", "redis://:secret@cache/0"),
        ("redis_url", "rediss://user:p@ss@[::1]:6380/2?protocol=3"),
        ("redis_url", "unix:///run/valkey.sock?db=1"),
        ("postgres_dsn", "postgres://user:secret@first:5432,second:5433/holdfast?target_session_attrs=read-write"),
        ("postgres_dsn", "postgresql:///holdfast?host=/run/postgresql"),
        ("postgres_dsn", "postgresql://user@[::1]/holdfast"),
    ],
)
def test_addresses_of_every_form_are_taken(name: str, value: str) -> None:
    assert getattr(Settings.read({}, **{name: value}), name) == value
