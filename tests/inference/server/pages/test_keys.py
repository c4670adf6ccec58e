from inference.server.pages.keys import CODE_S, PageKeys


def test_a_code_is_exchanged_once_and_in_time_and_the_key_always() -> None:
    now = 0.0
    keys = PageKeys(lambda: now)
    code, late = keys.new_code(), keys.new_code()
    assert [keys.exchange(code), keys.exchange(code)] == [keys.key, None]
    assert [keys.exchange(keys.key), keys.exchange(keys.key)] == [keys.key, keys.key]
    now = CODE_S
    assert keys.exchange(late) is None
    assert not keys.admits(late)
    assert keys.exchange("") is None
    assert keys.exchange("\N{SNOWMAN}") is None
    assert keys.admits(keys.key)
