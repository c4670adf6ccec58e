"""Which settings make one core different from another."""

from __future__ import annotations

from protocol.identity import ANSWER_SETTINGS, IDENTITY_SETTINGS, core_settings, describe, differences, has_key_of
from protocol.settings import CORE_SETTINGS, Settings, json_name, option_name


def test_every_setting_that_changes_what_a_core_computes_or_keeps_counts() -> None:
    assert set(CORE_SETTINGS) - set(IDENTITY_SETTINGS) == {"model", "unload_after_s", "exit_after_s"}
    assert set(IDENTITY_SETTINGS) - set(CORE_SETTINGS) == {"engine_key"}
    keeping = {"engine_key", "engine_session_header", "threads", "slots", "store_mb", "disk_mb"}
    assert set(IDENTITY_SETTINGS) - set(ANSWER_SETTINGS) == keeping


def test_a_core_with_the_same_settings_does_not_differ() -> None:
    settings = Settings(weights="int8", store_mb=7, healing="on")
    assert differences(core_settings(settings), settings) == ()


def test_differences_are_told_in_one_line() -> None:
    found = differences(core_settings(Settings(store_mb=7, threads=1, exit_after_s=1)), Settings(healing="on"))
    assert describe(found, json_name) == (
        "threads = 1 (requested: 0), storeMb = 7 (requested: 0), healing = auto (requested: on)"
    )
    assert describe(found[1:2], option_name) == "--store-mb = 7 (requested: 0)"
    assert [one.name for one in differences(core_settings(Settings(slots=3)), Settings(), ANSWER_SETTINGS)] == []


def test_another_key_of_the_engine_is_a_difference_that_shows_neither() -> None:
    keyed = core_settings(Settings(engine_key="hush one"))
    assert "hush" not in str(keyed)
    assert differences(keyed, Settings(engine_key="hush one")) == ()
    assert differences(keyed, Settings()) == (), "settings without a key ask for none in particular"
    assert differences(keyed, Settings(engine_key="hush two"), ANSWER_SETTINGS) == ()
    assert describe(differences(keyed, Settings(engine_key="hush two")), json_name) == (
        "engineKey = another key (requested: yours)"
    )
    assert describe(differences(core_settings(Settings()), Settings(engine_key="hush two")), json_name) == (
        "engineKey = none (requested: yours)"
    )
    assert [has_key_of(keyed, Settings(engine_key=key)) for key in ("hush one", "hush two", "")] == [True, False, False]
    assert has_key_of(core_settings(Settings()), Settings(engine_key="hush two"))


def test_what_a_core_does_not_publish_has_its_default() -> None:
    assert differences({}, Settings()) == ()
    assert [one.name for one in differences({"a_new_one": 1}, Settings(dtype="float32"))] == ["dtype"]
