"""Settings: where they come from, which one wins, and how a bad one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import BadSettings
from protocol.settings import SETTINGS, Settings, chosen_settings, json_name, option_name, variable_name
from protocol.settings_sources import is_for_us, read_environment, with_environment, with_json, with_json_text, with_options

DEFAULTS = Settings()


def test_later_sources_win() -> None:
    settings = with_environment(DEFAULTS, {"MIDFILL_MAX_TOKENS": "1", "MIDFILL_MODEL": "a", "MIDFILL_DTYPE": "float16"})
    settings = with_options(settings, {"max_tokens": 2, "model": "b", "device": None})
    settings, _ = with_json(settings, {"maxTokens": 3})
    assert (settings.max_tokens, settings.model, settings.dtype, settings.device) == (3, "b", "float16", "auto")


def test_environment_is_read_by_type() -> None:
    environment = {
        "MIDFILL_MULTI_LINE": "no",
        "MIDFILL_STORE_MB": "7",
        "MIDFILL_DISABLED_LANGUAGES": "markdown, plaintext,",
        "MIDFILL_RUNTIME_DIR": "/not/a/setting",
        "PATH": "/bin",
    }
    settings = with_environment(DEFAULTS, environment)
    assert (settings.multi_line, settings.store_mb) == (False, 7)
    assert settings.disabled_languages == ("markdown", "plaintext")


@pytest.mark.parametrize(
    "given",
    [
        {"maxTokens": 7, "disabledLanguages": ["go"]},
        {"max_tokens": 7, "disabled_languages": ["go"]},
        {"midfill": {"maxTokens": 7, "disabledLanguages": ["go"]}},
        {"midfill": {"maxTokens": 7, "disabledLanguages": ["go"]}, "python": {"analysis": {}}},
    ],
)
def test_editors_may_write_keys_as_they_are_used_to(given: dict[str, Any]) -> None:
    settings, _ = with_json(DEFAULTS, given)
    assert (settings.max_tokens, settings.disabled_languages) == (7, ("go",))


def test_no_settings_change_nothing() -> None:
    for nothing in (None, {}, [], {"midfill": None}):
        assert with_json(DEFAULTS, nothing) == (DEFAULTS, ())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxTokens": "7"}, "maxTokens = '7': expected whole number"),
        ({"maxTokens": True}, "maxTokens = True: expected whole number"),
        ({"maxTokens": 0}, "maxTokens = 0: must be at least 1"),
        ({"maxTokens": 10**12}, "maxTokens = 1000000000000: must be at most 4096"),
        ({"maxTokens": 7.0}, "maxTokens = 7.0: expected whole number"),
        ({"alternatives": 17}, "alternatives = 17: must be at most 16"),
        ({"multiLine": 1}, "multiLine = 1: expected true or false"),
        ({"strategy": "fim"}, "strategy = 'fim': expected one of `efim`, `psm`, `spm`, `none`"),
        ({"disabledLanguages": "go"}, "disabledLanguages = 'go': expected list of names"),
        ({"disabledLanguages": [1]}, "disabledLanguages = [1]: expected list of names"),
        ({"disabledLanguages": ["go, c"]}, "disabledLanguages = ['go, c']: expected list of names"),
        ([1], "the settings must be an object with keys, not [1]"),
    ],
)
def test_bad_settings_are_named(given: object, message: str) -> None:
    with pytest.raises(BadSettings) as caught:
        with_json(DEFAULTS, given)
    assert message in str(caught.value)


def test_bad_settings_are_called_as_their_source_calls_them() -> None:
    with pytest.raises(BadSettings, match="MIDFILL_MAX_TOKENS = 'many': expected whole number"):
        with_environment(DEFAULTS, {"MIDFILL_MAX_TOKENS": "many"})
    with pytest.raises(BadSettings, match="unknown setting MIDFILL_MODLE: did you mean MIDFILL_MODEL"):
        with_environment(DEFAULTS, {"MIDFILL_MODLE": "x"})
    with pytest.raises(BadSettings, match="--max-tokens = 0: must be at least 1"):
        with_options(DEFAULTS, {"max_tokens": 0})


@pytest.mark.parametrize("given", [["go,python"], ["go", "python"], [" go , python ,"]])
def test_an_option_with_a_list_is_repeated_or_separated_by_commas(given: list[str]) -> None:
    assert with_options(DEFAULTS, {"disabled_languages": given}).disabled_languages == ("go", "python")
    with pytest.raises(BadSettings, match=r"--disabled-languages = .*'go python'.*: expected list of names"):
        with_options(DEFAULTS, {"disabled_languages": [*given, "go python"]})


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(Settings(core_token="hush"))
    with pytest.raises(BadSettings) as caught:
        with_json(DEFAULTS, {"coreToken": ["hush"]})
    assert "hush" not in str(caught.value)
    for key in ("coreTokn", "token", "authToken", "password"):
        assert "hush" not in str(with_json(DEFAULTS, {"midfill": {key: "hush"}}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxTokns": 3}, "unknown setting maxTokns: did you mean maxTokens?"),
        ({"zzz": None}, "unknown setting zzz; docs/settings.md lists all"),
    ],
)
def test_keys_of_an_editor_that_are_no_settings_are_named_and_the_others_taken(given: object, message: str) -> None:
    assert isinstance(given, dict)
    settings, (unknown,) = with_json(DEFAULTS, {"midfill": {"multiLine": False, **given}})
    assert message in str(unknown)
    assert not settings.multi_line
    assert settings.context_sources == (("edits",) if "contextSources" in given else DEFAULTS.context_sources)


def test_every_number_has_its_limits() -> None:
    unlimited = [name for name, setting in SETTINGS.items() if setting.kind is int and setting.about.at_most is None]
    assert unlimited == []


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (None, False),
        ({}, False),
        ([], False),
        ({"pylsp": {"plugins": {}}}, False),
        ({"pylsp": {}, "midfill": {}}, True),
        ({"maxTokens": 3}, True),
        (5, True),
    ],
)
def test_settings_of_other_programs_are_none_of_ours(given: object, *, ours: bool) -> None:
    assert is_for_us(given) == ours


def test_every_bad_variable_is_told_and_the_good_ones_are_taken() -> None:
    environment = {"MIDFILL_MAX_TOKENS": "x" * 1000, "MIDFILL_DEVICE": "cpu", "MIDFILL_MODLE": "y"}
    settings, refused = read_environment(DEFAULTS, environment)
    assert settings == Settings(device="cpu")
    assert [str(error).partition(" = ")[0].partition(":")[0] for error in refused] == [
        "MIDFILL_MAX_TOKENS",
        "unknown setting MIDFILL_MODLE",
    ]
    assert all(len(str(error)) < 200 for error in refused)


def test_a_variable_that_resembles_no_setting_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    variables = ("MIDFILL_PORT", "MIDFILL_PORT_443_TCP", "MIDFILL_CORE_SERVICE_PORT", "MIDFILL_HOST")
    assert read_environment(DEFAULTS, dict.fromkeys(variables, "tcp://10.0.0.1:443")) == (DEFAULTS, ())
    assert [record.args for record in caplog.records] == [(variable,) for variable in variables]
    for variable in ("MIDFILL_MODLE", "MIDFILL_STORE", "MIDFILL_SLOT"):
        assert variable in str(read_environment(DEFAULTS, {variable: "1"})[1])


def test_a_variable_that_is_set_to_nothing_counts_as_not_set() -> None:
    assert with_environment(DEFAULTS, {"MIDFILL_MAX_TOKENS": "", "MIDFILL_MODEL": ""}) == DEFAULTS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the settings are not JSON .*: '{'"),
        ("[1]", "the settings must be an object with keys, not"),
        ('{"devce": "cpu"}', "did you mean device"),
        ('{"maxTokens": "many"}', "maxTokens = 'many'"),
    ],
)
def test_settings_from_another_program_that_are_none(text: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        with_json_text(Settings(), text)


def test_settings_from_another_program() -> None:
    given = json.dumps(chosen_settings(Settings(model="a", store_mb=7), ("model", "store_mb")))
    assert with_json_text(Settings(device="cpu"), given) == Settings(model="a", store_mb=7, device="cpu")


TEXTS = st.one_of(st.text(), st.text("~/.:=\\ \0\n-_[]@%,1é\udcff", max_size=40), st.sampled_from(["1e999", "NaN", "٣"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@given(st.sampled_from(sorted(SETTINGS)), TEXTS, VALUES, st.lists(TEXTS, max_size=3))
def test_any_value_of_any_setting_is_taken_or_refused_by_its_name(
    name: str, text: str, value: object, several: list[str]
) -> None:
    sources: list[tuple[str, Callable[[], object]]] = [
        (variable_name(name), lambda: with_environment(DEFAULTS, {variable_name(name): text})),
        (option_name(name), lambda: with_options(DEFAULTS, {name: several if value is None else value})),
        (json_name(name), lambda: with_json(DEFAULTS, {json_name(name): value})),
        ("", lambda: with_json(DEFAULTS, value)),
        ("", lambda: with_json_text(DEFAULTS, text)),
    ]
    for named, read in sources:
        if named == option_name(name) and isinstance(value, list):
            continue  # a command line has lists of texts alone
        refused = ""
        try:
            read()
        except BadSettings as error:
            refused = str(error)
        assert named in refused or not refused
